/*
 * Which annotations can be believed. Exact names, not prefixes: CRI-O puts a pod's own annotations, whatever their
 * names, into the OCI annotations first and then writes its own over them (internal/factory/container/container.go,
 * SpecAddAnnotations), so a name that it does not write itself is the pod author's, "io.kubernetes.cri-o.Namespace"
 * of an application container included. The kubelet's labels come last and override everything. containerd lets pod
 * annotations through by the globs in its configuration only, and writes its own over them
 * (internal/cri/annotations/annotations.go, DefaultCRIAnnotations).
 *
 * podman puts the annotations of an image's manifest into the container's, so under podman an image's author writes
 * CRI-O's names. What tells CRI-O is its container id, which no image can know.
 *
 * Left out on purpose: io.kubernetes.cri-o.Labels, .Annotations and .Metadata (JSON of what the pod's author wrote),
 * and io.podman.annotations.* (options of podman's caller).
 */
#include <errno.h>

#include "condition.h"

enum writer { WRITER_CONTAINERD, WRITER_CRIO };

static const struct {
	const char *key;
	enum writer writer;
	enum annotation_source source;
} known[] = {
	{ "io.kubernetes.cri.sandbox-id", WRITER_CONTAINERD, SOURCE_RUNTIME },
	{ "io.kubernetes.cri.sandbox-namespace", WRITER_CONTAINERD, SOURCE_RUNTIME },
	{ "io.kubernetes.cri.sandbox-uid", WRITER_CONTAINERD, SOURCE_RUNTIME },
	{ "io.kubernetes.cri.container-type", WRITER_CONTAINERD, SOURCE_NAME },
	{ "io.kubernetes.cri.sandbox-name", WRITER_CONTAINERD, SOURCE_NAME },
	{ "io.kubernetes.cri.container-name", WRITER_CONTAINERD, SOURCE_NAME },
	{ "io.kubernetes.cri.image-name", WRITER_CONTAINERD, SOURCE_NAME },
	{ "io.kubernetes.cri-o.ContainerID", WRITER_CRIO, SOURCE_RUNTIME },
	{ "io.kubernetes.cri-o.SandboxID", WRITER_CRIO, SOURCE_RUNTIME },
	{ "io.kubernetes.cri-o.Name", WRITER_CRIO, SOURCE_RUNTIME },        /* k8s_CONTAINER_POD_NAMESPACE_UID_N */
	{ "io.kubernetes.cri-o.SandboxName", WRITER_CRIO, SOURCE_RUNTIME }, /* k8s_POD_NAMESPACE_UID_N */
	{ "io.kubernetes.cri-o.ContainerType", WRITER_CRIO, SOURCE_NAME },
	{ "io.kubernetes.cri-o.Image", WRITER_CRIO, SOURCE_NAME },
	{ "io.kubernetes.cri-o.ImageName", WRITER_CRIO, SOURCE_NAME },
	{ "io.kubernetes.cri-o.ImageRef", WRITER_CRIO, SOURCE_NAME },
	{ "io.container.manager", WRITER_CRIO, SOURCE_NAME },
	{ "io.kubernetes.pod.namespace", WRITER_CRIO, SOURCE_RUNTIME },
	{ "io.kubernetes.pod.uid", WRITER_CRIO, SOURCE_RUNTIME },
	{ "io.kubernetes.pod.name", WRITER_CRIO, SOURCE_NAME },
	{ "io.kubernetes.container.name", WRITER_CRIO, SOURCE_NAME },
};

/* ARRAY_LEN(known): not among them. */
static size_t find(const char *key, size_t len)
{
	size_t i = 0;

	while (i < ARRAY_LEN(known) && (strlen(known[i].key) != len || memcmp(known[i].key, key, len) != 0))
		i++;
	return i;
}

enum annotation_source annotation_source(const char *key, size_t len)
{
	size_t i = find(key, len);

	return i < ARRAY_LEN(known) ? known[i].source : SOURCE_ANYONE;
}

const char *annotation_believed(const struct oci_annotations *a, const char *id, const char *key, bool trust)
{
	const char *value = a ? oci_annotation(a, key) : NULL, *container_id;
	size_t i = find(key, strlen(key));

	if (!value || trust || i == ARRAY_LEN(known) || known[i].writer != WRITER_CRIO)
		return value;
	container_id = oci_annotation(a, "io.kubernetes.cri-o.ContainerID");
	return container_id && id && str_eq(container_id, id) ? value : NULL;
}

int annotation_conflict(const struct oci_annotations *a, const char **ret_one, const char **ret_other)
{
	const char *first[] = { [WRITER_CONTAINERD] = NULL, [WRITER_CRIO] = NULL };

	for (size_t i = 0; a && i < ARRAY_LEN(known); i++)
		if (!first[known[i].writer] && oci_annotation(a, known[i].key))
			first[known[i].writer] = known[i].key;
	if (!first[WRITER_CONTAINERD] || !first[WRITER_CRIO])
		return 0;
	*ret_one = first[WRITER_CONTAINERD];
	*ret_other = first[WRITER_CRIO];
	return -EINVAL;
}

const char *annotation_pod_id(const struct oci_annotations *a, const char *id, bool trust)
{
	static const char *const keys[] = {
		"io.kubernetes.cri.sandbox-id",
		"io.kubernetes.cri-o.SandboxID", /* CRI-O, and podman for a container of a pod */
	};

	for (size_t i = 0; i < ARRAY_LEN(keys); i++) {
		const char *pod = annotation_believed(a, id, keys[i], trust);

		if (pod && *pod)
			return pod;
	}
	return NULL;
}
