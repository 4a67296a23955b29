/* What the hook's stages share. Private to hook/. */
#pragma once

#include "apply.h"
#include "oci.h"

struct hook_options {
	const char *stage;
	const char *policy_path;
	const char *state_dir;
	const char *root;
};

struct hook {
	const struct hook_options *options;
	struct sys *sys;
	struct oci_state state;
	struct arena arena; /* owns what state points to */
};

/* Each returns 0, or a negative errno with a line for the person who starts the container. */
int stage_create(struct hook *h, struct error *err) must_check;    /* prestart, createRuntime */
int stage_poststart(struct hook *h, struct error *err) must_check;
int stage_poststop(struct hook *h, struct error *err) must_check;

/* For what must be said although the container starts. */
void hook_say(const struct hook *h, const char *text);
