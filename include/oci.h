/*
 * What cotenant reads of the two OCI documents: the container state (on the hook's stdin) and the bundle's config.json.
 * Sources: opencontainers/runtime-spec runtime.md "State" and config.md, config-linux.md.
 *
 * Both are written by the runtime but carry text from strangers (annotations, ids). Everything is length-limited.
 */
#pragma once

#include <sys/types.h>

#include "arena.h"
#include "error.h"

#define OCI_STATE_MAX (1u << 20)     /* bytes of a container state */
#define OCI_CONFIG_MAX (16u << 20)   /* bytes of a config.json */
#define OCI_ANNOTATIONS_MAX 4096     /* entries */
#define OCI_ID_MAX 255               /* bytes: an id must also be able to name a file */

struct oci_annotation {
	const char *key, *value;
};

struct oci_annotations {
	struct oci_annotation *items; /* sorted by key */
	size_t n;
};

/* The value, or NULL. */
const char *oci_annotation(const struct oci_annotations *a, const char *key);
/* As oci_annotation() needs them: by key. */
void oci_annotations_sort(struct oci_annotations *a);

struct oci_state {
	const char *id;
	pid_t pid;          /* 0 when absent: poststop has none (runc), crun writes 0 there */
	const char *bundle; /* NULL when absent */
	const char *status; /* "" when absent; crun says "created" where the specification says "creating" */
	struct oci_annotations annotations;
};

/* `need_pid` and `need_bundle`: whether the stage cannot do without them. Everything allocated lives in the arena. */
int oci_state_parse(struct arena *a, const char *text, size_t len, bool need_pid, bool need_bundle,
		    struct oci_state *ret_state, struct error *err) must_check;

/* 1 to OCI_ID_MAX bytes of letters, digits and "_+-." (what runc and crun accept), not "." or "..". -EINVAL else. */
int oci_id_check(const char *id, size_t len, struct error *err) must_check;

struct oci_config {
	const char *cgroups_path;     /* linux.cgroupsPath, NULL when absent */
	const char *cpus, *mems;      /* linux.resources.cpu, NULL when absent or empty */
	int64_t cpu_quota, cpu_period; /* microseconds; quota <= 0: no limit; period 0: absent (the kernel's is 100000) */
	uint64_t cpu_shares;          /* 0: absent */
	int64_t memory_limit;         /* bytes; <= 0: no limit */
	const char *memory_policy;    /* linux.memoryPolicy.mode ("MPOL_…"), NULL when absent: the runtime applies it itself */
	const char *memory_policy_nodes;
	bool user_namespace;          /* linux.namespaces holds one of its own */
	bool pid_namespace;
	bool has_uid_mapping;
	uint32_t host_uid;            /* host id of the container's uid 0 (linux.uidMappings), when has_uid_mapping */
	struct oci_annotations annotations;
};

int oci_config_parse(struct arena *a, const char *text, size_t len, struct oci_config *ret_config,
		     struct error *err) must_check;
