/* oci_config_parse() on any bytes. */
#include "oci.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void require(bool holds)
{
	if (!holds)
		abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	cleanup_arena struct arena a = { 0 };
	cleanup_error struct error err = { 0 };
	struct oci_config config = { 0 };
	int r = oci_config_parse(&a, (const char *) data, size, &config, &err);

	require((r < 0) == (err.text != NULL));
	if (r < 0) {
		require(!strpbrk(err.text, "\n\r\x1b"));
		return 0;
	}
	require(config.cpu_period >= 0);
	require(!config.cpus || *config.cpus);
	require(!config.mems || *config.mems);
	for (size_t i = 0; i < config.annotations.n; i++)
		require(oci_annotation(&config.annotations, config.annotations.items[i].key) ==
			config.annotations.items[i].value);
	return 0;
}
