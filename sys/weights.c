#include "dir.h"
#include "ledger.h"

#include <errno.h>
#include <stdio.h>

#define WEIGHTS_DIR "/sys/kernel/mm/mempolicy/weighted_interleave"

/*
 * Since Linux 6.16 the kernel can derive the weights itself, and stops when one is written. The file is called "auto",
 * but on kernels compiled where `auto` is a macro its name came out as "__auto_type".
 */
static const char *const auto_files[] = { WEIGHTS_DIR "/auto", WEIGHTS_DIR "/__auto_type" };

static int read_weight(const struct sys *s, unsigned node, uint8_t *ret)
{
	cleanup_free char *text = NULL;
	unsigned long value;
	char *end;
	int r = file_readf(s, &text, WEIGHTS_DIR "/node%u", node);

	if (r < 0)
		return r;
	value = strtoul(text, &end, 10);
	if (end == text || (*end && *end != '\n') || value > UINT8_MAX)
		return -EBADMSG;
	*ret = (uint8_t) value;
	return 0;
}

static bool read_auto(const struct sys *s)
{
	for (size_t i = 0; i < ARRAY_LEN(auto_files); i++) {
		cleanup_free char *text = NULL;

		if (file_readf(s, &text, "%s", auto_files[i]) == 0)
			return *text == 't' || *text == '1';
	}
	return false;
}

int weights_read(const struct sys *s, struct saved_weights *ret)
{
	struct saved_weights w = { 0 };
	cleanup_free int *nodes = NULL;
	size_t n;
	int r = dir_ids(s, WEIGHTS_DIR, "node", &nodes, &n);

	for (size_t i = 0; r == 0 && i < n && nodes[i] < NODE_MAX; i++)
		r = read_weight(s, (unsigned) nodes[i], &w.node[nodes[i]]);
	if (r < 0)
		return r;
	w.was_auto = read_auto(s);
	*ret = w;
	return 0;
}

static int write_weight(const struct sys *s, unsigned node, uint8_t weight, struct error *err)
{
	cleanup_free char *path = NULL, *text = NULL;
	uint8_t now;
	int r = read_weight(s, node, &now);

	if (r == -ENOENT)
		return error_set(err, ENOENT, "interleave weight of node %u: the kernel has no %s/node%u", node,
				 WEIGHTS_DIR, node);
	if (r == 0 && now == weight)
		return 0;
	if (asprintf(&path, WEIGHTS_DIR "/node%u", node) < 0)
		path = NULL;
	if (asprintf(&text, "%u\n", weight) < 0)
		text = NULL;
	if (!path || !text)
		return error_no_memory(err);
	r = file_write(s, path, text);
	if (r == 0)
		r = read_weight(s, node, &now);
	if (r < 0)
		return error_set(err, -r, "interleave weight %u cannot be written to %s: %s", weight, path,
				 strerror(-r));
	if (now != weight)
		return error_set(err, EBADE, "%s reads %u after %u was written: something else writes weights here",
				 path, now, weight);
	return 0;
}

int weights_write(const struct sys *s, const uint8_t weights[NODE_MAX], struct error *err)
{
	for (unsigned node = 0; node < NODE_MAX; node++) {
		int r = weights[node] ? write_weight(s, node, weights[node], err) : 0;

		if (r < 0)
			return r;
	}
	return 0;
}

/* -ENODEV: the firmware names no bandwidths (HMAT); such a kernel is in auto mode after boot, but never again. */
static int restore_auto(const struct sys *s, struct error *err)
{
	int r = -ENOENT;

	for (size_t i = 0; r == -ENOENT && i < ARRAY_LEN(auto_files); i++)
		r = file_write(s, auto_files[i], "1\n");
	if (r == 0 && !read_auto(s))
		r = -EBADE;
	return r < 0 ? error_set(err, -r, "the kernel's automatic interleave weights cannot be switched on again in %s: %s",
				 WEIGHTS_DIR, r == -EBADE ? "they stay off" : strerror(-r)) :
		       0;
}

int weights_restore(const struct sys *s, const struct saved_weights *saved, struct error *err)
{
	int r = saved->was_auto ? restore_auto(s, err) : -ENODEV;

	return r == -ENODEV ? weights_write(s, saved->node, err) : r;
}
