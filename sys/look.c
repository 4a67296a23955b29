/* The machine's facts for who only looks: found out anew, and left nowhere. */
#include "sys.h"

#include <errno.h>

#define FACTS_MAX (4u << 20)

int facts_look(const struct sys *s, const char *root, struct facts *ret_facts, struct error *err)
{
	cleanup_free char *program = NULL, *text = NULL;
	size_t len = 0;
	int r = helper_path("cotenant-topology", &program);

	if (r < 0)
		return error_set(err, -r, "cotenant-topology cannot be found: %s", strerror(-r));
	r = helper_ask(s, (const char *const[]){ program, "--root", s->acting ? "/" : root, "--print", NULL }, FACTS_MAX,
		       &text, &len, err);
	r = r < 0 ? r : facts_parse("cotenant-topology", text, len, ret_facts, err);
	return r < 0 ? error_prefix(err, r, "the machine's topology cannot be found out") : 0;
}
