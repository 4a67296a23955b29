/* The two lives of cotenant-anchor. Private to hook/. */
#pragma once

#include "sys.h"

/* All of an anchor's making that needs neither a group nor a hook, done before anybody waits for it. */
int anchor_prepare(void) must_check;
/* Holds the cookie that the process has, once a byte came on standard input. Returns only when none came. */
int anchor_hold(void);
/* state_dir NULL: the default. Returns only when it cannot go on. */
int keeper_main(const char *state_dir);
