#include "json.h"
#include "oci.h"

#include <errno.h>
#include <limits.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>

#include <cmocka.h>

static char *read_fixture(const char *name, size_t *ret_len)
{
	cleanup_free char *path = NULL;
	char *text = malloc(1 << 16);
	FILE *f;

	assert_true(asprintf(&path, "tests/fixtures/oci/%s", name) > 0);
	f = fopen(path, "re");
	if (!f)
		fail_msg("%s: cannot be opened (run from the top of the source tree)", path);
	assert_non_null(text);
	*ret_len = fread(text, 1, 1 << 16, f);
	fclose(f);
	assert_in_range(*ret_len, 1, (1 << 16) - 1);
	return text;
}

static void state_ok(struct arena *a, const char *fixture, bool needs, struct oci_state *ret)
{
	cleanup_error struct error err = { 0 };
	size_t len;
	cleanup_free char *text = read_fixture(fixture, &len);

	if (oci_state_parse(a, text, len, needs, needs, ret, &err) < 0)
		fail_msg("%s: %s", fixture, error_text(&err));
}

static void config_ok(struct arena *a, const char *text, size_t len, struct oci_config *ret)
{
	cleanup_error struct error err = { 0 };

	if (oci_config_parse(a, text, len, ret, &err) < 0)
		fail_msg("%s", error_text(&err));
}

/* ---- states as the runtimes write them ---- */

static void test_state_runc(void **state)
{
	cleanup_arena struct arena a = { 0 };
	struct oci_state s;

	(void) state;
	state_ok(&a, "state-runc.json", true, &s);
	assert_string_equal(s.id, "web1");
	assert_int_equal(s.pid, 41712);
	assert_string_equal(s.bundle, "/srv/bundles/web1");
	assert_string_equal(s.status, "creating");
	assert_int_equal(s.annotations.n, 1);
	assert_string_equal(oci_annotation(&s.annotations, "org.systemd.property.CollectMode"), "'inactive-or-failed'");

	state_ok(&a, "state-runc-poststop.json", false, &s);
	assert_int_equal(s.pid, 0);
	assert_string_equal(s.status, "stopped");
	assert_int_equal(s.annotations.n, 0);
	assert_null(oci_annotation(&s.annotations, "a"));
}

static void test_state_crun(void **state)
{
	cleanup_arena struct arena a = { 0 };
	struct oci_state s;

	(void) state;
	state_ok(&a, "state-crun.json", true, &s);
	assert_int_equal(s.pid, 52713);
	assert_string_equal(s.status, "created");
	assert_string_equal(oci_annotation(&s.annotations, "io.container.manager"), "libpod");
	state_ok(&a, "state-crun-poststop.json", false, &s);
	assert_int_equal(s.pid, 0);
	assert_string_equal(s.status, "stopped");
}

static void test_state_kubernetes(void **state)
{
	cleanup_arena struct arena a = { 0 };
	struct oci_state s;

	(void) state;
	state_ok(&a, "state-containerd.json", true, &s);
	assert_int_equal(s.annotations.n, 7);
	assert_string_equal(oci_annotation(&s.annotations, "io.kubernetes.cri.sandbox-namespace"), "pay-eu");
	assert_null(oci_annotation(&s.annotations, "io.kubernetes.cri.sandbox"));
	assert_null(oci_annotation(&s.annotations, ""));
	for (size_t i = 1; i < s.annotations.n; i++)
		assert_true(strcmp(s.annotations.items[i - 1].key, s.annotations.items[i].key) < 0);

	state_ok(&a, "state-crio.json", true, &s);
	assert_string_equal(oci_annotation(&s.annotations, "io.kubernetes.pod.namespace"), "bank");
	assert_string_equal(oci_annotation(&s.annotations, "io.kubernetes.cri-o.Metadata"), "{\"name\":\"ledger\"}");
	assert_string_equal(oci_annotation(&s.annotations, "kubernetes.io/config.source"), "api");
}

static void test_state_null_and_unknown(void **state)
{
	static const char text[] = "{\"id\":\"a\",\"pid\":null,\"bundle\":null,\"status\":null,\"annotations\":null,"
				   "\"vendor\":{\"pid\":18446744073709551615}}";
	cleanup_arena struct arena a = { 0 };
	struct oci_state s;

	(void) state;
	assert_int_equal(oci_state_parse(&a, text, strlen(text), false, false, &s, NULL), 0);
	assert_int_equal(s.pid, 0);
	assert_null(s.bundle);
	assert_string_equal(s.status, "");
	assert_int_equal(s.annotations.n, 0);
}

static const struct {
	const char *text, *message;
} bad_states[] = {
	{ "", "container state: empty: the runtime gave nothing on standard input" },
	{ "\n", "container state:2:1: empty: a JSON document is expected" },
	{ "{\"id\":\"web1\",\"pid\":41",
	  "container state:1:22: cut short: ',' or '}' expected (the object from 1:1 is still open)" },
	{ "[]", "container state:1:1: an object expected, found an array" },
	{ "{}", "container state: no \"id\"" },
	{ "{\"id\":null}", "container state: no \"id\"" },
	{ "{\"id\":7}", "container state:1:7: id: a string expected, found an integer" },
	{ "{\"id\":\"\"}", "container state:1:7: id: empty" },
	{ "{\"id\":\"..\"}", "container state:1:7: id \"..\" names a directory, not a container" },
	{ "{\"id\":\"a/../b\"}",
	  "container state:1:7: id \"a/../b\": '/' is not allowed, only letters, digits and _+-. are" },
	{ "{\"id\":\"a\\u001b[2J\"}",
	  "container state:1:7: id \"a\\x1b[2J\": '\\x1b' is not allowed, only letters, digits and _+-. are" },
	{ "{\"id\":\"a\",\"bundle\":\"/b\"}",
	  "container state: no \"pid\" (or 0), but this stage acts on the container's process" },
	{ "{\"id\":\"a\",\"bundle\":\"/b\",\"pid\":0}",
	  "container state: no \"pid\" (or 0), but this stage acts on the container's process" },
	{ "{\"id\":\"a\",\"pid\":\"1\"}", "container state:1:17: pid: an integer expected, found a string" },
	{ "{\"id\":\"a\",\"pid\":1.5}", "container state:1:17: pid: an integer expected, found a real number" },
	{ "{\"id\":\"a\",\"pid\":-1}", "container state:1:17: pid: -1 is out of range (0 to 2147483647)" },
	{ "{\"id\":\"a\",\"pid\":2147483648}",
	  "container state:1:17: pid: 2147483648 is out of range (0 to 2147483647)" },
	{ "{\"id\":\"a\",\"pid\":9}", "container state: no \"bundle\", but this stage reads its config.json" },
	{ "{\"id\":\"a\",\"pid\":9,\"bundle\":\"\"}",
	  "container state: no \"bundle\", but this stage reads its config.json" },
	{ "{\"id\":\"a\",\"pid\":9,\"bundle\":\"b\"}", "container state: \"bundle\" is not an absolute path" },
	{ "{\"id\":\"a\",\"pid\":9,\"bundle\":{}}",
	  "container state:1:28: bundle: a string expected, found an object" },
	{ "{\"id\":\"a\",\"pid\":9,\"bundle\":\"/b\",\"status\":1}",
	  "container state:1:42: status: a string expected, found an integer" },
	{ "{\"id\":\"a\",\"pid\":9,\"bundle\":\"/b\",\"annotations\":[]}",
	  "container state:1:47: annotations: an object expected, found an array" },
	{ "{\"id\":\"a\",\"pid\":9,\"bundle\":\"/b\",\n\"annotations\":{\"k\":\"v\",\"io.x/y\":true}}",
	  "container state:2:33: annotations[\"io.x/y\"]: a string expected, found true or false" },
	{ "{\"id\":\"a\",\"id\":\"b\"}", "container state:1:11: key \"id\" again: it stands at 1:2 already" },
};

static void test_bad_states(void **state)
{
	(void) state;
	for (size_t i = 0; i < ARRAY_LEN(bad_states); i++) {
		cleanup_arena struct arena a = { 0 };
		cleanup_error struct error err = { 0 };
		const char *text = bad_states[i].text;
		struct oci_state s = { .id = "untouched" };

		assert_int_equal(oci_state_parse(&a, text, strlen(text), true, true, &s, &err), -EINVAL);
		assert_string_equal(error_text(&err), bad_states[i].message);
		assert_string_equal(s.id, "untouched");
	}
}

static void test_state_sizes(void **state)
{
	cleanup_arena struct arena a = { 0 };
	cleanup_error struct error err = { 0 };
	size_t len = OCI_STATE_MAX + 1;
	cleanup_free char *text = malloc(len);
	struct oci_state s;

	(void) state;
	memset(text, ' ', len);
	memcpy(text, "{\"id\":\"a\"}", 10);
	assert_int_equal(oci_state_parse(&a, text, len - 1, false, false, &s, &err), 0);
	assert_int_equal(oci_state_parse(&a, text, len, false, false, &s, &err), -E2BIG);
	assert_string_equal(error_text(&err), "container state: 1048577 bytes, more than the 1048576 that are allowed");

	memset(text, '[', 70);
	assert_int_equal(oci_state_parse(&a, text, 70, false, false, &s, &err), -E2BIG);
	assert_string_equal(error_text(&err), "container state:1:65: nested deeper than 64 arrays and objects");
}

/* A state or config with n annotations "k0": "v0", … */
static char *many_annotations(int n, size_t *ret_len)
{
	cleanup_json_writer struct json_writer *w = json_writer_new(true);
	char key[16], value[16], *text = NULL;

	json_open_object(w, NULL);
	json_string(w, "id", "many");
	json_open_object(w, "annotations");
	for (int i = 0; i < n; i++) {
		snprintf(key, sizeof(key), "k%d", i);
		snprintf(value, sizeof(value), "v%d", i);
		json_string(w, key, value);
	}
	json_close(w);
	json_close(w);
	assert_int_equal(json_writer_take(w, &text, ret_len), 0);
	return text;
}

static void test_annotation_limit(void **state)
{
	for (int over = 0; over < 2; over++) {
		cleanup_arena struct arena a = { 0 };
		cleanup_error struct error err = { 0 };
		size_t len;
		cleanup_free char *text = many_annotations(OCI_ANNOTATIONS_MAX + over, &len);
		struct oci_state s;
		struct oci_config c;
		int r = oci_state_parse(&a, text, len, false, false, &s, &err);

		(void) state;
		assert_int_equal(r, over ? -E2BIG : 0);
		if (over)
			assert_string_equal(
				error_text(&err),
				"container state:3:18: annotations: 4097 entries, more than the 4096 that are allowed");
		for (int i = 0; !over && i < OCI_ANNOTATIONS_MAX; i++) {
			char key[16];

			snprintf(key, sizeof(key), "k%d", i);
			assert_non_null(oci_annotation(&s.annotations, key));
			assert_string_equal(oci_annotation(&s.annotations, key) + 1, key + 1);
		}
		assert_int_equal(oci_config_parse(&a, text, len, &c, &err), over ? -E2BIG : 0);
	}
}

static void test_id(void **state)
{
	static const char *const good[] = { "a", "A_b+c-d.e9", "...", ".a", "-" };
	static const char *const bad[] = { "", ".", "..", "a b", "a,b", "/", "a\n", "\xc3\xa9", "a:b" };
	cleanup_error struct error err = { 0 };
	char text[5000];

	(void) state;
	for (size_t i = 0; i < ARRAY_LEN(good); i++)
		assert_int_equal(oci_id_check(good[i], strlen(good[i]), NULL), 0);
	for (size_t i = 0; i < ARRAY_LEN(bad); i++)
		assert_int_equal(oci_id_check(bad[i], strlen(bad[i]), NULL), -EINVAL);
	assert_int_equal(oci_id_check("a\0b", 3, &err), -EINVAL);
	assert_string_equal(error_text(&err),
			    "id \"a\\x00b\": '\\x00' is not allowed, only letters, digits and _+-. are");
	memset(text, 'x', sizeof(text));
	assert_int_equal(oci_id_check(text, OCI_ID_MAX, &err), 0);
	assert_int_equal(oci_id_check(text, OCI_ID_MAX + 1, &err), -EINVAL);
	assert_int_equal(oci_id_check(text, sizeof(text), &err), -EINVAL);
	assert_string_equal(error_text(&err),
			    "id \"xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx...\": "
			    "5000 bytes, more than the 255 that are allowed");
}

/* ---- configs ---- */

static void test_config_spec(void **state)
{
	static const char *const fixtures[] = { "config-runc-spec.json", "config-crun-spec.json" };

	(void) state;
	for (size_t i = 0; i < ARRAY_LEN(fixtures); i++) {
		cleanup_arena struct arena a = { 0 };
		size_t len;
		cleanup_free char *text = read_fixture(fixtures[i], &len);
		struct oci_config c;

		config_ok(&a, text, len, &c);
		assert_null(c.cgroups_path);
		assert_null(c.cpus);
		assert_null(c.mems);
		assert_null(c.memory_policy);
		assert_true(c.cpu_quota == 0 && c.cpu_period == 0 && c.cpu_shares == 0 && c.memory_limit == 0);
		assert_true(c.pid_namespace);
		assert_false(c.user_namespace);
		assert_false(c.has_uid_mapping);
		assert_int_equal(c.annotations.n, 0);
	}
}

static void test_config_kubelet(void **state)
{
	cleanup_arena struct arena a = { 0 };
	size_t len;
	cleanup_free char *text = read_fixture("config-kubelet.json", &len);
	struct oci_config c;

	(void) state;
	config_ok(&a, text, len, &c);
	assert_string_equal(c.cgroups_path,
			    "kubepods-pod0e4f7c52_7a5b_4c1e_9a7d_0b9f3c1d2e3f.slice:cri-containerd:7c2f5d5cb2b0");
	assert_string_equal(c.cpus, "2-3,66-67");
	assert_string_equal(c.mems, "0");
	assert_int_equal(c.cpu_quota, 200000);
	assert_int_equal(c.cpu_period, 100000);
	assert_int_equal(c.cpu_shares, 2048);
	assert_int_equal(c.memory_limit, INT64_C(2147483648));
	assert_string_equal(c.memory_policy, "MPOL_INTERLEAVE");
	assert_string_equal(c.memory_policy_nodes, "0-1");
	assert_true(c.user_namespace);
	assert_true(c.pid_namespace);
	assert_true(c.has_uid_mapping);
	assert_int_equal(c.host_uid, 655360000);
	assert_string_equal(oci_annotation(&c.annotations, "io.kubernetes.cri.container-type"), "container");
}

static void test_config_odd_but_valid(void **state)
{
	static const char text[] =
		"{\"annotations\":{},\"linux\":{\"cgroupsPath\":\"\",\"resources\":{\"cpu\":{\"cpus\":\"\","
		"\"mems\":null,\"quota\":-1,\"burst\":18446744073709551615},\"memory\":null},"
		"\"namespaces\":[{},{\"type\":null},{\"type\":\"time\"}],"
		"\"uidMappings\":[{\"containerID\":0,\"hostID\":9,\"size\":0},{\"hostID\":4294967295,\"size\":1},"
		"{\"hostID\":7,\"size\":1}]}}";
	cleanup_arena struct arena a = { 0 };
	struct oci_config c;

	(void) state;
	config_ok(&a, text, strlen(text), &c);
	assert_null(c.cgroups_path);
	assert_null(c.cpus);
	assert_null(c.mems);
	assert_int_equal(c.cpu_quota, -1);
	assert_false(c.user_namespace || c.pid_namespace);
	assert_true(c.has_uid_mapping);
	assert_int_equal(c.host_uid, UINT32_MAX);
	config_ok(&a, "{}", 2, &c);
	assert_null(c.cgroups_path);
	config_ok(&a, "{\"linux\":null}", 14, &c);
	assert_null(c.cgroups_path);
}

static const struct {
	const char *text, *message;
} bad_configs[] = {
	{ "", "config.json:1:1: empty: a JSON document is expected" },
	{ "7", "config.json:1:1: an object expected, found an integer" },
	{ "{\"linux\":[]}", "config.json:1:10: linux: an object expected, found an array" },
	{ "{\"linux\":{\"cgroupsPath\":1}}",
	  "config.json:1:25: linux.cgroupsPath: a string expected, found an integer" },
	{ "{\"linux\":{\"resources\":\"x\"}}",
	  "config.json:1:23: linux.resources: an object expected, found a string" },
	{ "{\"linux\":{\"resources\":{\"cpu\":{\"cpus\":{}}}}}",
	  "config.json:1:38: linux.resources.cpu.cpus: a string expected, found an object" },
	{ "{\"linux\":{\"resources\":{\"cpu\":{\"quota\":\"1\"}}}}",
	  "config.json:1:39: linux.resources.cpu.quota: an integer expected, found a string" },
	{ "{\"linux\":{\"resources\":{\"cpu\":{\"period\":-1}}}}",
	  "config.json:1:40: linux.resources.cpu.period: -1 is out of range (0 to 9223372036854775807)" },
	{ "{\"linux\":{\"resources\":{\"cpu\":{\"shares\":18446744073709551615}}}}",
	  "config.json:1:40: linux.resources.cpu.shares: an integer expected, found a real number" },
	{ "{\"linux\":{\"memoryPolicy\":{\"mode\":2}}}",
	  "config.json:1:34: linux.memoryPolicy.mode: a string expected, found an integer" },
	{ "{\"linux\":{\"namespaces\":[{},3]}}",
	  "config.json:1:28: linux.namespaces[1]: an object expected, found an integer" },
	{ "{\"linux\":{\"namespaces\":[{\"type\":3}]}}",
	  "config.json:1:33: linux.namespaces[0].type: a string expected, found an integer" },
	{ "{\"linux\":{\"uidMappings\":[{\"hostID\":4294967296}]}}",
	  "config.json:1:36: linux.uidMappings[0].hostID: 4294967296 is out of range (0 to 4294967295)" },
	{ "{\"annotations\":{\"k\":null}}", "config.json:1:21: annotations.k: a string expected, found null" },
	{ "{\"hooks\":{},}", "config.json:1:13: a key in double quotes after ',' expected, found '}'" },
};

static void test_bad_configs(void **state)
{
	(void) state;
	for (size_t i = 0; i < ARRAY_LEN(bad_configs); i++) {
		cleanup_arena struct arena a = { 0 };
		cleanup_error struct error err = { 0 };
		const char *text = bad_configs[i].text;
		struct oci_config c = { .cpus = "untouched" };

		assert_int_equal(oci_config_parse(&a, text, strlen(text), &c, &err), -EINVAL);
		assert_string_equal(error_text(&err), bad_configs[i].message);
		assert_string_equal(c.cpus, "untouched");
	}
}

static void test_config_sizes(void **state)
{
	cleanup_arena struct arena a = { 0 };
	cleanup_error struct error err = { 0 };
	size_t len = OCI_CONFIG_MAX + 1;
	cleanup_free char *text = malloc(len);
	struct oci_config c;

	(void) state;
	memset(text, ' ', len);
	memcpy(text, "{}", 2);
	assert_int_equal(oci_config_parse(&a, text, len - 1, &c, &err), 0);
	assert_int_equal(oci_config_parse(&a, text, len, &c, &err), -E2BIG);
	assert_string_equal(error_text(&err), "config.json: 16777217 bytes, more than the 16777216 that are allowed");
	for (size_t i = 0; i < len; i++)
		text[i] = i % 2 ? '0' : ',';
	text[0] = '[';
	assert_int_equal(oci_config_parse(&a, text, len - 1, &c, &err), -E2BIG);
	assert_true(strstr(error_text(&err), "more than 262144 values") != NULL);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_state_runc),
		cmocka_unit_test(test_state_crun),
		cmocka_unit_test(test_state_kubernetes),
		cmocka_unit_test(test_state_null_and_unknown),
		cmocka_unit_test(test_bad_states),
		cmocka_unit_test(test_state_sizes),
		cmocka_unit_test(test_annotation_limit),
		cmocka_unit_test(test_id),
		cmocka_unit_test(test_config_spec),
		cmocka_unit_test(test_config_kubelet),
		cmocka_unit_test(test_config_odd_but_valid),
		cmocka_unit_test(test_bad_configs),
		cmocka_unit_test(test_config_sizes),
	};

	return cmocka_run_group_tests_name("oci", tests, NULL, NULL);
}
