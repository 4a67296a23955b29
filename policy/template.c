/* Templates of a tenant's name. */
#include <errno.h>

#include "condition.h"

static const struct {
	const char *name; /* with a colon: the rest is an argument */
	enum variable variable;
} variables[] = {
	{ "id", VARIABLE_ID },         { "annotation:", VARIABLE_ANNOTATION },
	{ "cgroup", VARIABLE_CGROUP }, { "image", VARIABLE_IMAGE },
	{ "uid", VARIABLE_UID },
};

static int fail(struct template_piece *piece, const char *text, size_t len, const char *why, const char **ret_why)
{
	*piece = (struct template_piece){ .text = text, .len = len };
	*ret_why = why;
	return -EINVAL;
}

/* name … name + len stands between the braces. */
static bool find_variable(const char *name, size_t len, struct template_piece *ret)
{
	for (size_t i = 0; i < ARRAY_LEN(variables); i++) {
		size_t known = strlen(variables[i].name);
		bool argument = variables[i].name[known - 1] == ':';

		if (argument ? len <= known : len != known)
			continue;
		if (memcmp(name, variables[i].name, known) != 0)
			continue;
		*ret = (struct template_piece){ variables[i].variable, name + known, len - known };
		return true;
	}
	return false;
}

int template_next(const char **at, struct template_piece *ret_piece, const char **ret_why)
{
	const char *s = *at, *end;

	if (!*s)
		return 0;
	if (*s != '$') {
		end = s + strcspn(s, "$");
		*ret_piece = (struct template_piece){ VARIABLE_LITERAL, s, (size_t) (end - s) };
	} else if (s[1] == '$') {
		end = s + 2;
		*ret_piece = (struct template_piece){ VARIABLE_LITERAL, s, 1 };
	} else if (s[1] != '{') {
		return fail(ret_piece, s, size_min(strlen(s), 2), "a lone $; write $$ for a dollar", ret_why);
	} else {
		end = strchr(s, '}');
		if (!end)
			return fail(ret_piece, s, strlen(s), "the brace is not closed", ret_why);
		if (!find_variable(s + 2, (size_t) (end - s) - 2, ret_piece))
			return fail(
				ret_piece, s, (size_t) (end - s) + 1,
				"unknown variable; known are: ${id}, ${annotation:KEY}, ${cgroup}, ${image}, ${uid}",
				ret_why);
		end++;
	}
	*at = end;
	return 1;
}

bool name_hides_space(const char *name)
{
	size_t len = strlen(name);

	return len && (name[0] == ' ' || name[len - 1] == ' ' || strstr(name, "  "));
}
