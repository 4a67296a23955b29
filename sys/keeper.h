/* Anchors from the keeper, for sys/anchor.c. */
#pragma once

#include "sys.h"

/*
 * An anchor that holds a new cookie and waits for a byte on *ret_go_fd; it ends when that closes first.
 * -ENOENT: no keeper listens in the state directory. -ECHILD: one does, and could start none. After both the caller may
 * start an anchor itself; err has the reason.
 */
int keeper_spawn(const struct sys *s, int state_dir_fd, const char *state_dir, const char *title, pid_t *ret_pid,
		 int *ret_go_fd, struct error *err) must_check;
