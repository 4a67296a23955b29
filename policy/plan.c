#include "plan.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>

static const struct {
	const char *name, *text;
} support_texts[] = {
	[CORESCHED_SUPPORTED] = { "supported", "the kernel supports core scheduling" },
	[CORESCHED_NO_KERNEL_OPTION] = { "no-kernel-option", "this kernel is built without core scheduling" },
	[CORESCHED_NO_SIBLINGS] = { "no-siblings", "no core has two threads online, so none can be shared" },
	[CORESCHED_DENIED] = { "denied", "the kernel or a seccomp filter denies core scheduling to cotenant" },
	[CORESCHED_KNOWN_BAD] = { "known-bad", "the running scheduler or kernel is known not to keep cookies apart" },
};

const char *coresched_support_name(enum coresched_support s)
{
	return (size_t) s < ARRAY_LEN(support_texts) ? support_texts[s].name : NULL;
}

const char *coresched_support_text(enum coresched_support s)
{
	return (size_t) s < ARRAY_LEN(support_texts) ? support_texts[s].text :
						       "the state of core scheduling is not known";
}

static const char *const mechanism_names[] = {
	[MECHANISM_NONE] = "none",
	[MECHANISM_COOKIE] = "cookie",
	[MECHANISM_CORES] = "cores",
	[MECHANISM_NO_SIBLINGS] = "no-siblings",
};

const char *mechanism_name(enum mechanism m)
{
	return (size_t) m < ARRAY_LEN(mechanism_names) ? mechanism_names[m] : NULL;
}

int mechanism_from_name(const char *name, enum mechanism *ret)
{
	for (size_t i = 0; i < ARRAY_LEN(mechanism_names); i++)
		if (str_eq(name, mechanism_names[i])) {
			*ret = (enum mechanism) i;
			return 0;
		}
	return -EINVAL;
}

void plan_free(struct plan *p)
{
	if (!p)
		return;
	for (size_t i = 0; i < p->n_reasons; i++)
		free(p->reasons[i]);
	for (size_t i = 0; i < p->n_rejects; i++) {
		free(p->rejects[i].candidate);
		free(p->rejects[i].why);
	}
	free(p->reasons);
	free(p->rejects);
	plan_adjusts_free(p->adjusts, p->n_adjusts);
	free(p);
}

void plan_freep(struct plan **p)
{
	plan_free(*p);
	*p = NULL;
}

printf_like(2, 0) static bool add_reason(struct plan *p, const char *fmt, va_list args)
{
	char **more = realloc(p->reasons, (p->n_reasons + 1) * sizeof(*more));
	char *text = NULL;

	if (!more)
		return false;
	p->reasons = more;
	if (vasprintf(&text, fmt, args) < 0)
		return false;
	p->reasons[p->n_reasons++] = text;
	return true;
}

void plan_reason(struct plan *p, const char *fmt, ...)
{
	va_list args;

	va_start(args, fmt);
	add_reason(p, fmt, args);
	va_end(args);
}

void plan_lack(struct plan *p, const char *fmt, ...)
{
	va_list args;

	p->degraded = true;
	va_start(args, fmt);
	if (add_reason(p, fmt, args)) {
		char *text = p->reasons[p->n_reasons - 1], **at = p->reasons + p->n_lacks;

		memmove(at + 1, at, (p->n_reasons - 1 - p->n_lacks) * sizeof(*at));
		*at = text;
		p->n_lacks++;
	}
	va_end(args);
}

char *plan_lacks(const struct plan *p)
{
	char *line = p->n_lacks ? strdup(p->reasons[0]) : NULL;

	for (size_t i = 1; line && i < p->n_lacks; i++) {
		cleanup_free char *before = line;

		if (asprintf(&line, "%s; %s", before, p->reasons[i]) < 0)
			line = NULL;
	}
	return line;
}
