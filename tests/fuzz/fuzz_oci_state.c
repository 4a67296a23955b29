/* oci_state_parse() on any bytes. */
#include "oci.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void require(bool holds)
{
	if (!holds)
		abort();
}

static void check(const struct oci_state *state)
{
	require(state->pid >= 0 && state->status);
	require(oci_id_check(state->id, strlen(state->id), NULL) == 0);
	for (size_t i = 0; i < state->annotations.n; i++)
		require(oci_annotation(&state->annotations, state->annotations.items[i].key) ==
			state->annotations.items[i].value);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	for (int needs = 0; needs < 2; needs++) {
		cleanup_arena struct arena a = { 0 };
		cleanup_error struct error err = { 0 };
		struct oci_state state = { 0 };
		int r = oci_state_parse(&a, (const char *) data, size, needs, needs, &state, &err);

		require((r < 0) == (err.text != NULL));
		if (r < 0)
			require(!strpbrk(err.text, "\n\r\x1b"));
		else
			check(&state);
		require(r < 0 || !needs || (state.pid > 0 && state.bundle[0] == '/'));
	}
	return 0;
}
