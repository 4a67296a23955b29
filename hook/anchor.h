/* The two lives of cotenant-anchor. Private to hook/. */
#pragma once

#include "sys.h"

/* Holds the cookie that the process has, once a byte came on standard input. Returns only when there is none to hold. */
int anchor_main(void);
/* state_dir NULL: the default. Returns only when it cannot go on. */
int keeper_main(const char *state_dir);
