/* Goal: what programs that were built once count on stays: sizes and places of fields, values of constants. NULL is an error or nothing,
   never a crash. */
#include "check.h"
#include <stddef.h>

#define SIZE(type, size) _Static_assert(sizeof(type) == (size), #type " has another size")
#define PLACE(type, field, place) _Static_assert(offsetof(type, field) == (place), #type "." #field " is elsewhere")

#if __SIZEOF_POINTER__ == 8
SIZE(onesweep_time, 16);
SIZE(onesweep_stat, 104);
PLACE(onesweep_stat, size, 24);
PLACE(onesweep_stat, mtime, 56);
SIZE(onesweep_failure, 24);
PLACE(onesweep_failure, path, 8);
SIZE(onesweep_xattr, 24);
SIZE(onesweep_counts, 232);
PLACE(onesweep_counts, cancelled, 160);
PLACE(onesweep_counts, reserved, 168);
SIZE(onesweep_estimate, 152);
PLACE(onesweep_estimate, seconds, 112);
SIZE(onesweep_disk_plan, 176);
SIZE(onesweep_planned_file, 56);
PLACE(onesweep_planned_file, is_dirty, 48);
SIZE(onesweep_score, 24);
SIZE(onesweep_layout_side, 72);
SIZE(onesweep_layout_figures, 232);
PLACE(onesweep_layout_figures, packed, 128);
SIZE(onesweep_directory, 280);
SIZE(onesweep_totals, 56);
SIZE(onesweep_summary, 184);
PLACE(onesweep_summary, has_newest, 144);
PLACE(onesweep_summary, reserved, 152);
SIZE(onesweep_progress, 32);
#endif
_Static_assert(ONESWEEP_OK == 0 && ONESWEEP_ERROR_ARGUMENT == 1 && ONESWEEP_ERROR_CONNECTION == 24, "codes are other ones");
_Static_assert(ONESWEEP_CONTINUE == 0 && ONESWEEP_IN_BATCHES == 8192 && ONESWEEP_ORDER_DIRECTORY == 6, "constants are other ones");

int main(void)
{
    char version[32];
    snprintf(version, sizeof version, "%d.%d.%d", ONESWEEP_VERSION_MAJOR, ONESWEEP_VERSION_MINOR, ONESWEEP_VERSION_PATCH);
    CHECK(strcmp(onesweep_version(), version) == 0);

    onesweep_options_free(NULL);
    onesweep_cancel_free(NULL);
    onesweep_cancel_throw(NULL);
    CHECK(!onesweep_cancel_is_thrown(NULL));
    onesweep_buffer_free(NULL);
    CHECK(!onesweep_buffer_data(NULL) && onesweep_buffer_size(NULL) == 0);
    onesweep_plan_free(NULL);
    onesweep_service_free(NULL);
    onesweep_file_free(NULL);
    CHECK(!onesweep_file_keep(NULL));

#define WRONG(call) GIVES(ONESWEEP_ERROR_ARGUMENT, call)
    WRONG(onesweep_options_set_flags(NULL, 0));
    WRONG(onesweep_options_set_budget(NULL, 1));
    WRONG(onesweep_options_set_large(NULL, 1));
    WRONG(onesweep_options_set_catalog_limit(NULL, 1));
    WRONG(onesweep_options_set_order(NULL, 0));
    WRONG(onesweep_options_set_strategy(NULL, 0));
    WRONG(onesweep_options_set_reassembly(NULL, 0, 0));
    WRONG(onesweep_options_set_freeze_limit(NULL, 1));
    WRONG(onesweep_options_add_exclude(NULL, "x"));
    WRONG(onesweep_options_set_entries(NULL, 0));
    WRONG(onesweep_options_set_cache(NULL, 0));
    WRONG(onesweep_options_set_metadata(NULL, 0));
    WRONG(onesweep_options_set_bandwidth_limit(NULL, 1));
    WRONG(onesweep_options_set_queue_depth(NULL, 1));
    WRONG(onesweep_options_set_gap(NULL, 1));
    WRONG(onesweep_options_set_max_request(NULL, 1));
    WRONG(onesweep_options_set_disk_model(NULL, "ssd"));
    WRONG(onesweep_options_set_base(NULL, "/"));
    WRONG(onesweep_options_set_logdev(NULL, "/"));
    WRONG(onesweep_options_set_rtdev(NULL, "/"));
    WRONG(onesweep_options_set_threads(NULL, 1));
    WRONG(onesweep_options_set_cancel(NULL, NULL));
    WRONG(onesweep_options_set_progress(NULL, NULL, NULL));
    onesweep_options *options = onesweep_options_new();
    OK(onesweep_options_set_progress(options, NULL, NULL));
    onesweep_options_free(options);

    CHECK(!onesweep_file_path(NULL) && !onesweep_file_failure(NULL) && !onesweep_file_stat(NULL));
    size_t size = 7;
    CHECK(!onesweep_file_data(NULL, &size) && size == 0);
    CHECK(!onesweep_file_data(NULL, NULL) && !onesweep_file_open_path(NULL) && !onesweep_file_linked_to(NULL));
    CHECK(!onesweep_file_link_target(NULL) && !onesweep_file_link(NULL, 0) && onesweep_file_link_count(NULL) == 0);
    CHECK(onesweep_file_range_count(NULL) == 0 && onesweep_file_xattr_count(NULL) == 0);
    CHECK(onesweep_file_flags(NULL) == 0 && onesweep_file_route(NULL) == ONESWEEP_ROUTE_NO_READ);
    uint64_t start, end;
    onesweep_xattr xattr;
    onesweep_buffer *buffer;
    WRONG(onesweep_file_range(NULL, 0, &start, &end));
    WRONG(onesweep_file_xattr(NULL, 0, &xattr));
    WRONG(onesweep_file_take(NULL, &buffer));
    CHECK(!buffer);
    WRONG(onesweep_file_take(NULL, NULL));
    WRONG(onesweep_file_pread(NULL, &start, 1, 0, &size));

    onesweep_plan *plan = (onesweep_plan *)&size;
    onesweep_estimate estimate;
    WRONG(onesweep_plan_new(NULL, 1, NULL, &plan));
    CHECK(!plan);
    WRONG(onesweep_plan_new_fd(NULL, 1, NULL, NULL));
    WRONG(onesweep_plan_estimate(NULL, &estimate));
    WRONG(onesweep_plan_estimate_with(NULL, 0, 0, &estimate));
    WRONG(onesweep_plan_disks(NULL, NULL, NULL));
    WRONG(onesweep_plan_files(NULL, NULL, NULL));
    WRONG(onesweep_plan_failures(NULL, NULL, NULL));
    WRONG(onesweep_plan_run(NULL, count_files, NULL, NULL));
    CHECK(!onesweep_plan_is_partial(NULL));
    const char *paths[] = {"/proc/self/status"};
    OK(onesweep_plan_new(paths, 1, NULL, &plan));
    WRONG(onesweep_plan_estimate(plan, NULL));
    WRONG(onesweep_plan_estimate_with(plan, 0, 0, NULL));
    WRONG(onesweep_plan_disks(plan, NULL, NULL));
    WRONG(onesweep_plan_files(plan, NULL, NULL));
    WRONG(onesweep_plan_failures(plan, NULL, NULL));
    WRONG(onesweep_plan_run(plan, NULL, NULL, NULL));
    /* Arguments are looked at before the plan is used. */
    int files = 0;
    OK(onesweep_plan_run(plan, count_files, &files, NULL));
    CHECK(files == 1);
    onesweep_plan_free(plan);

    onesweep_summary summary;
    WRONG(onesweep_service_summary(NULL, "/", 0, &summary));
    WRONG(onesweep_service_summary_fd(NULL, 0, 0, &summary));
    WRONG(onesweep_walk(paths, 1, NULL, NULL, NULL, NULL));
    WRONG(onesweep_layout(paths, 1, NULL, 0, NULL, NULL, NULL));
    WRONG(onesweep_layout_fd(&files, 1, NULL, 0, NULL, NULL, NULL));
    return 0;
}
