/* Goal: each error that needs no root, with its number and a text that names the path; nothing is handed over where there is nothing. */
#include "check.h"
#include <stdatomic.h>

static int never(void *user, onesweep_file *file)
{
    (void)user;
    (void)file;
    CHECK(!"called");
    return ONESWEEP_CONTINUE;
}

struct failures {
    int files, failures;
    onesweep_error code;
    int number;
    char path[PATH_MAX], text[PATH_MAX + 200];
};

static void note(struct failures *failures, const onesweep_failure *failure)
{
    failures->failures++;
    failures->code = failure->code;
    failures->number = failure->error_number;
    snprintf(failures->path, sizeof failures->path, "%s", failure->path ? failure->path : "(none)");
    snprintf(failures->text, sizeof failures->text, "%s", failure->text);
}

static int count(void *user, onesweep_file *file)
{
    struct failures *failures = user;
    const onesweep_failure *failure = onesweep_file_failure(file);
    if (failure) {
        size_t got;
        char byte;
        CHECK(strcmp(onesweep_file_path(file), failure->path) == 0);
        GIVES(ONESWEEP_ERROR_NO_CONTENT, onesweep_file_pread(file, &byte, 1, 0, &got));
        note(failures, failure);
    } else {
        failures->files++;
    }
    return ONESWEEP_CONTINUE;
}

static int count_failures(void *user, const onesweep_failure *failure)
{
    note(user, failure);
    return ONESWEEP_CONTINUE;
}

static int read_stream(void *user, onesweep_file *file)
{
    char *bytes = malloc(1 << 20);
    size_t got = 1;
    onesweep_error error = ONESWEEP_OK;
    CHECK(bytes && onesweep_file_route(file) == ONESWEEP_ROUTE_STREAMED);
    make_file(onesweep_file_path(file), 200001, 8);
    for (uint64_t offset = 0; got > 0 && error == ONESWEEP_OK; offset += got)
        error = onesweep_file_pread(file, bytes, 100000, offset, &got);
    *(onesweep_error *)user = error;
    free(bytes);
    return ONESWEEP_CONTINUE;
}

static int read_cancelled_stream(void *user, onesweep_file *file)
{
    char byte;
    size_t got;
    onesweep_cancel_throw(user);
    GIVES(ONESWEEP_ERROR_CANCELLED, onesweep_file_pread(file, &byte, 1, 0, &got));
    CHECK(got == 0);
    return ONESWEEP_CONTINUE;
}

struct writer {
    const char *path;
    atomic_int done;
};

static void *write_on_and_on(void *user)
{
    struct writer *writer = user;
    int fd = open(writer->path, O_WRONLY);
    CHECK(fd >= 0);
    for (unsigned at = 0; !atomic_load(&writer->done); at++)
        CHECK(pwrite(fd, &at, sizeof at, at % 100 * 4096) == sizeof at);
    CHECK(close(fd) == 0);
    return NULL;
}

int main(int argc, char **argv)
{
    CHECK(argc == 2);
    const char *top = argv[1];
    const char *missing[] = {in(top, "missing")}, *here[] = {top}, *holes[] = {top, NULL};
    onesweep_counts counts;
    struct failures failures = {0};
    make_file(in(top, "file"), 10, 1);

    /* Before there was any error. */
    CHECK(strcmp(onesweep_last_message(), "") == 0 && onesweep_last_errno() == 0);

    /* Arguments. */
    GIVES(ONESWEEP_ERROR_ARGUMENT, onesweep_bulk_read(here, 1, NULL, NULL, NULL, NULL));
    CHECK(strstr(onesweep_last_message(), "callback"));
    GIVES(ONESWEEP_ERROR_ARGUMENT, onesweep_bulk_read(NULL, 1, NULL, never, NULL, NULL));
    GIVES(ONESWEEP_ERROR_ARGUMENT, onesweep_bulk_read(holes, 2, NULL, never, NULL, NULL));
    GIVES(ONESWEEP_ERROR_ARGUMENT, onesweep_bulk_read(here, SIZE_MAX, NULL, never, NULL, NULL));
    int bad[] = {-1}, closed[] = {500000};
    GIVES(ONESWEEP_ERROR_ARGUMENT, onesweep_bulk_read_fd(bad, 1, NULL, never, NULL, NULL));
    CHECK(onesweep_last_errno() == EBADF);
    GIVES(ONESWEEP_ERROR_ARGUMENT, onesweep_walk_fd(closed, 1, NULL, never, NULL, NULL));
    CHECK(onesweep_last_errno() == EBADF && strstr(onesweep_last_message(), "500000"));
    GIVES(ONESWEEP_ERROR_ARGUMENT, onesweep_bulk_read_fd(NULL, 1, NULL, never, NULL, NULL));

    /* Roots. */
    GIVES(ONESWEEP_ERROR_NO_ROOTS, onesweep_bulk_read(NULL, 0, NULL, never, NULL, NULL));
    GIVES(ONESWEEP_ERROR_NO_ROOTS, onesweep_walk_fd(NULL, 0, NULL, never, NULL, NULL));
    GIVES(ONESWEEP_ERROR_ROOT, onesweep_walk(missing, 1, NULL, never, NULL, NULL));
    CHECK(onesweep_last_errno() == ENOENT && strstr(onesweep_last_message(), "missing"));
    /* One of two that is missing is a failure like others. */
    const char *two[] = {in(top, "file"), missing[0]};
    OK(onesweep_bulk_read(two, 2, NULL, count, &failures, &counts));
    CHECK(failures.files == 1 && failures.failures == 1 && counts.errors == 1 && counts.files == 1);
    CHECK(failures.code == ONESWEEP_ERROR_IO && failures.number == ENOENT && strcmp(failures.path, missing[0]) == 0);
    CHECK(strstr(failures.text, missing[0]));
    /* A file that is open and was replaced is not there by its name. */
    int fds[] = {open(in(top, "file"), O_RDONLY)};
    CHECK(rename(in(top, "file"), in(top, "renamed")) == 0);
    make_file(in(top, "file"), 10, 1);
    CHECK(unlink(in(top, "renamed")) == 0);
    GIVES(ONESWEEP_ERROR_ROOT, onesweep_bulk_read_fd(fds, 1, NULL, never, NULL, NULL));
    CHECK(onesweep_last_errno() == ENOENT || onesweep_last_errno() == ESTALE);
    CHECK(close(fds[0]) == 0);

    /* Options. */
    onesweep_options *options = onesweep_options_new();
    GIVES(ONESWEEP_ERROR_ARGUMENT, onesweep_options_set_flags(options, 1u << 31));
    GIVES(ONESWEEP_ERROR_ARGUMENT, onesweep_options_set_order(options, 7));
    GIVES(ONESWEEP_ERROR_ARGUMENT, onesweep_options_set_strategy(options, 4));
    GIVES(ONESWEEP_ERROR_ARGUMENT, onesweep_options_set_reassembly(options, 5, 0));
    GIVES(ONESWEEP_ERROR_ARGUMENT, onesweep_options_set_entries(options, 2));
    GIVES(ONESWEEP_ERROR_ARGUMENT, onesweep_options_set_cache(options, 2));
    GIVES(ONESWEEP_ERROR_ARGUMENT, onesweep_options_set_metadata(options, 3));
    GIVES(ONESWEEP_ERROR_ARGUMENT, onesweep_options_set_threads(options, 0));
    GIVES(ONESWEEP_ERROR_ARGUMENT, onesweep_options_set_threads(options, 1025));
    GIVES(ONESWEEP_ERROR_ARGUMENT, onesweep_options_set_disk_model(options, "none such"));
    CHECK(strstr(onesweep_last_message(), "barracuda"));
    GIVES(ONESWEEP_ERROR_ARGUMENT, onesweep_options_set_disk_model(options, NULL));
    GIVES(ONESWEEP_ERROR_ARGUMENT, onesweep_options_set_base(options, NULL));
    GIVES(ONESWEEP_ERROR_ARGUMENT, onesweep_options_set_logdev(options, NULL));
    GIVES(ONESWEEP_ERROR_ARGUMENT, onesweep_options_set_rtdev(options, NULL));
    GIVES(ONESWEEP_ERROR_ARGUMENT, onesweep_options_add_exclude(options, NULL));
    OK(onesweep_options_set_budget(options, 10));
    GIVES(ONESWEEP_ERROR_SETTING, onesweep_bulk_read(here, 1, options, never, NULL, NULL));
    CHECK(strstr(onesweep_last_message(), "budget"));
    OK(onesweep_options_set_budget(options, 1 << 20));
    OK(onesweep_options_set_strategy(options, ONESWEEP_STRATEGY_MERGED));
    GIVES(ONESWEEP_ERROR_SETTING, onesweep_bulk_read(here, 1, options, never, NULL, NULL));
    OK(onesweep_options_set_strategy(options, ONESWEEP_STRATEGY_AUTO));
    onesweep_plan *plan = (onesweep_plan *)&failures;
    OK(onesweep_options_set_queue_depth(options, 0));
    GIVES(ONESWEEP_ERROR_SETTING, onesweep_plan_new(here, 1, options, &plan));
    CHECK(!plan);
    OK(onesweep_options_set_queue_depth(options, 4));

    /* What vanishes between the plan and the read. */
    make_file(in(top, "goes"), 5000, 1);
    OK(onesweep_options_set_flags(options, ONESWEEP_IGNORE_CACHE | ONESWEEP_ONE_AT_A_TIME));
    OK(onesweep_plan_new(here, 1, options, &plan));
    CHECK(unlink(in(top, "goes")) == 0);
    memset(&failures, 0, sizeof failures);
    OK(onesweep_plan_run(plan, count, &failures, &counts));
    CHECK(failures.files == 1 && failures.failures == 1 && failures.code == ONESWEEP_ERROR_VANISHED);
    CHECK(failures.number == ENOENT && strcmp(failures.path, in(top, "goes")) == 0);
    onesweep_plan_free(plan);

    /* What fails while the plan is made is told then, and once more by its run. */
    OK(onesweep_plan_new(two, 2, options, &plan));
    memset(&failures, 0, sizeof failures);
    OK(onesweep_plan_failures(plan, count_failures, &failures));
    CHECK(failures.failures == 1 && failures.code == ONESWEEP_ERROR_IO && failures.number == ENOENT);
    memset(&failures, 0, sizeof failures);
    OK(onesweep_plan_run(plan, count, &failures, NULL));
    CHECK(failures.failures == 1 && failures.files == 1);
    GIVES(ONESWEEP_ERROR_USED, onesweep_plan_failures(plan, count_failures, &failures));
    onesweep_plan_free(plan);

    /* A stream whose file changes while it is read, and one of a sweep that is cancelled. */
    make_file(in(top, "large"), 200000, 1);
    const char *large[] = {in(top, "large")};
    OK(onesweep_options_set_large(options, 1000));
    onesweep_error streamed = ONESWEEP_OK;
    OK(onesweep_bulk_read(large, 1, options, read_stream, &streamed, NULL));
    CHECK(streamed == ONESWEEP_ERROR_CHANGED && strstr(onesweep_last_message(), large[0]));
    onesweep_cancel *cancel = onesweep_cancel_new();
    OK(onesweep_options_set_cancel(options, cancel));
    GIVES(ONESWEEP_ERROR_CANCELLED, onesweep_bulk_read(large, 1, options, read_cancelled_stream, cancel, NULL));
    onesweep_options_free(options);
    onesweep_cancel_free(cancel);

    /* A file that never holds still. Chance decides whether a reading meets a write, so try until three did. */
    make_file(in(top, "restless"), 8 << 20, 1);
    struct writer writer = {.path = in(top, "restless")};
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, write_on_and_on, &writer) == 0);
    memset(&failures, 0, sizeof failures);
    for (int attempts = 0; failures.failures == 0; attempts++) {
        CHECK(attempts < 1000);
        OK(onesweep_bulk_read(&writer.path, 1, NULL, count, &failures, NULL));
    }
    atomic_store(&writer.done, 1);
    CHECK(pthread_join(thread, NULL) == 0);
    CHECK(failures.code == ONESWEEP_ERROR_CHANGED && failures.number == 0);

    /* Errors are those of the thread. */
    GIVES(ONESWEEP_ERROR_ROOT, onesweep_walk(missing, 1, NULL, never, NULL, NULL));
    char before[PATH_MAX + 100];
    snprintf(before, sizeof before, "%s", onesweep_last_message());
    OK(onesweep_walk(here, 1, NULL, count, &failures, NULL));
    CHECK(strcmp(before, onesweep_last_message()) == 0);
    for (onesweep_error code = 0; code <= ONESWEEP_ERROR_CONNECTION; code++)
        for (onesweep_error other = 0; other < code; other++)
            CHECK(strcmp(onesweep_strerror(code), onesweep_strerror(other)) != 0);
    CHECK(strcmp(onesweep_strerror(12345), onesweep_strerror(UINT32_MAX)) == 0);
    return 0;
}
