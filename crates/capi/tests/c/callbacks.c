/* Goal: callbacks that stop, cancel, begin other sweeps, keep files, take them over, and never give them back. */
#include "check.h"

#include <signal.h>
#include <sys/time.h>

enum { FILES = 60, SIZE = 30000 };

static const char *tree;

static int stop_at_third(void *user, onesweep_file *file)
{
    CHECK(onesweep_file_stat(file));
    return ++*(int *)user == 3 ? ONESWEEP_STOP : ONESWEEP_CONTINUE;
}

struct thrower {
    onesweep_cancel *cancel;
    int files;
};

static int throw_at_third(void *user, onesweep_file *file)
{
    struct thrower *thrower = user;
    if (onesweep_file_stat(file) && ++thrower->files == 3)
        onesweep_cancel_throw(thrower->cancel);
    return ONESWEEP_CONTINUE;
}

static void *throw_from_elsewhere(void *cancel)
{
    usleep(20000);
    onesweep_cancel_throw(cancel);
    return NULL;
}

static onesweep_cancel *alarmed;

static void throw_from_handler(int number)
{
    (void)number;
    onesweep_cancel_throw(alarmed);
}

static int wait_for_cancel(void *user, onesweep_file *file)
{
    CHECK(onesweep_file_path(file));
    while (!onesweep_cancel_is_thrown(user))
        usleep(1000);
    return ONESWEEP_CONTINUE;
}

static int read_all_again(void *user, onesweep_file *file)
{
    int inner = 0;
    const char *paths[] = {tree};
    CHECK(onesweep_file_stat(file));
    if (++*(int *)user <= 3) {
        OK(onesweep_bulk_read(paths, 1, NULL, count_files, &inner, NULL));
        CHECK(inner == FILES);
        /* An inner sweep that is stopped stops no other. */
        inner = 0;
        GIVES(ONESWEEP_ERROR_CANCELLED, onesweep_bulk_read(paths, 1, NULL, stop_at_third, &inner, NULL));
        CHECK(inner == 3);
    }
    return ONESWEEP_CONTINUE;
}

struct reader_of_plan {
    onesweep_plan *plan;
    int files;
};

static int use_own_plan(void *user, onesweep_file *file)
{
    struct reader_of_plan *reader = user;
    onesweep_estimate estimate;
    CHECK(onesweep_file_stat(file));
    GIVES(ONESWEEP_ERROR_USED, onesweep_plan_estimate(reader->plan, &estimate));
    GIVES(ONESWEEP_ERROR_USED, onesweep_plan_run(reader->plan, use_own_plan, user, NULL));
    reader->files++;
    return ONESWEEP_CONTINUE;
}

static int run_while_looking(void *user, const onesweep_planned_file *file)
{
    struct reader_of_plan *reader = user;
    onesweep_estimate estimate;
    CHECK(file->path && file->size == SIZE);
    OK(onesweep_plan_estimate(reader->plan, &estimate));
    GIVES(ONESWEEP_ERROR_USED, onesweep_plan_run(reader->plan, use_own_plan, user, NULL));
    return ++reader->files == 2 ? ONESWEEP_STOP : ONESWEEP_CONTINUE;
}

struct hoard {
    onesweep_file *kept[FILES];
    onesweep_buffer *taken[FILES];
    const void *data[FILES];
    int count, lent, stopped, gives_back;
};

static int keep(void *user, onesweep_file *file)
{
    struct hoard *hoard = user;
    const onesweep_failure *failure = onesweep_file_failure(file);
    if (failure) {
        CHECK(!onesweep_file_stat(file) && !onesweep_file_data(file, NULL) && !onesweep_file_path(file) && !failure->path);
        CHECK(!onesweep_file_open_path(file) && strlen(failure->text) > 0);
        if (failure->code == ONESWEEP_ERROR_BUDGET_LENT) {
            hoard->lent++;
            /* Whoever gives something back gets more. */
            if (hoard->gives_back) {
                while (hoard->count > 0)
                    onesweep_file_free(hoard->kept[--hoard->count]);
            }
        } else {
            CHECK(failure->code == ONESWEEP_ERROR_STOPPED);
            hoard->stopped++;
        }
        return ONESWEEP_CONTINUE;
    }
    CHECK(hoard->count < FILES);
    hoard->kept[hoard->count] = onesweep_file_keep(file);
    CHECK(hoard->kept[hoard->count] == file);
    hoard->data[hoard->count++] = onesweep_file_data(file, NULL);
    return ONESWEEP_CONTINUE;
}

static int take(void *user, onesweep_file *file)
{
    struct hoard *hoard = user;
    size_t got;
    char byte;
    CHECK(hoard->count < FILES);
    const void *data = onesweep_file_data(file, NULL);
    OK(onesweep_file_take(file, &hoard->taken[hoard->count]));
    hoard->data[hoard->count] = data;
    /* Its bytes are where they were, and no longer the file's. */
    CHECK(onesweep_buffer_data(hoard->taken[hoard->count]) == data && !onesweep_file_data(file, NULL));
    onesweep_buffer *again;
    GIVES(ONESWEEP_ERROR_NO_CONTENT, onesweep_file_take(file, &again));
    CHECK(!again && strstr(onesweep_last_message(), onesweep_file_path(file)));
    GIVES(ONESWEEP_ERROR_NO_CONTENT, onesweep_file_pread(file, &byte, 1, 0, &got));
    hoard->count++;
    return ONESWEEP_CONTINUE;
}

static void *free_all(void *user)
{
    struct hoard *hoard = user;
    while (hoard->count > 0)
        onesweep_file_free(hoard->kept[--hoard->count]);
    return NULL;
}

int main(int argc, char **argv)
{
    CHECK(argc == 2);
    tree = in(argv[1], "tree");
    CHECK(mkdir(tree, 0755) == 0);
    for (int number = 0; number < FILES; number++) {
        char name[16];
        snprintf(name, sizeof name, "f%d", number);
        make_file(in(tree, name), SIZE, 7);
    }
    const char *paths[] = {tree};
    onesweep_counts counts;

    /* Stop: by the callback's own wish, on one thread and on several. The handle is not thrown by it. */
    onesweep_options *options = onesweep_options_new();
    onesweep_cancel *cancel = onesweep_cancel_new();
    CHECK(options && cancel && !onesweep_cancel_is_thrown(cancel));
    OK(onesweep_options_set_cancel(options, cancel));
    int files = 0;
    GIVES(ONESWEEP_ERROR_CANCELLED, onesweep_bulk_read(paths, 1, options, stop_at_third, &files, &counts));
    CHECK(files == 3 && !onesweep_cancel_is_thrown(cancel));
    files = 0;
    OK(onesweep_bulk_read(paths, 1, options, count_files, &files, &counts));
    CHECK(files == FILES && !counts.cancelled);
    /* Stop at the very last one counts, too. */
    files = 2;
    const char *last[] = {in(tree, "f0")};
    GIVES(ONESWEEP_ERROR_CANCELLED, onesweep_bulk_read(last, 1, options, stop_at_third, &files, &counts));

    /* Cancel from the callback, from another thread, and before it begins. */
    struct thrower thrower = {.cancel = cancel};
    GIVES(ONESWEEP_ERROR_CANCELLED, onesweep_bulk_read(paths, 1, options, throw_at_third, &thrower, &counts));
    CHECK(thrower.files == 3 && counts.cancelled && onesweep_cancel_is_thrown(cancel));
    files = 0;
    GIVES(ONESWEEP_ERROR_CANCELLED, onesweep_bulk_read(paths, 1, options, count_files, &files, &counts));
    CHECK(files == 0);
    onesweep_cancel_free(cancel);
    cancel = onesweep_cancel_new();
    OK(onesweep_options_set_cancel(options, cancel));
    OK(onesweep_options_set_threads(options, 2));
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, throw_from_elsewhere, cancel) == 0);
    GIVES(ONESWEEP_ERROR_CANCELLED, onesweep_bulk_read(paths, 1, options, wait_for_cancel, cancel, &counts));
    CHECK(pthread_join(thread, NULL) == 0);
    onesweep_cancel_free(cancel);

    /* From a handler of a signal, whichever thread it comes to. */
    alarmed = onesweep_cancel_new();
    OK(onesweep_options_set_cancel(options, alarmed));
    struct sigaction action = {.sa_handler = throw_from_handler};
    struct itimerval soon = {.it_value = {.tv_usec = 20000}};
    CHECK(sigaction(SIGALRM, &action, NULL) == 0 && setitimer(ITIMER_REAL, &soon, NULL) == 0);
    GIVES(ONESWEEP_ERROR_CANCELLED, onesweep_bulk_read(paths, 1, options, wait_for_cancel, alarmed, &counts));
    OK(onesweep_options_set_cancel(options, NULL));
    OK(onesweep_options_set_threads(options, 1));
    onesweep_cancel_free(alarmed);

    /* Sweeps within a sweep. */
    files = 0;
    OK(onesweep_bulk_read(paths, 1, NULL, read_all_again, &files, &counts));
    CHECK(files == FILES);
    struct reader_of_plan reader = {0};
    OK(onesweep_plan_new(paths, 1, NULL, &reader.plan));
    GIVES(ONESWEEP_ERROR_CANCELLED, onesweep_plan_files(reader.plan, run_while_looking, &reader));
    reader.files = 0;
    OK(onesweep_plan_run(reader.plan, use_own_plan, &reader, &counts));
    CHECK(reader.files == FILES);
    onesweep_plan_free(reader.plan);

    /* Kept beyond the sweep, freed by another thread. */
    struct hoard hoard = {0};
    OK(onesweep_bulk_read(paths, 1, NULL, keep, &hoard, &counts));
    CHECK(hoard.count == FILES && counts.taken_over_bytes == 0);
    for (int at = 0; at < FILES; at++) {
        size_t size;
        CHECK(onesweep_file_data(hoard.kept[at], &size) == hoard.data[at] && size == SIZE);
        CHECK(same_bytes(hoard.data[at], SIZE, 0, 7) && onesweep_file_stat(hoard.kept[at])->size == SIZE);
    }
    /* What is kept can still be taken over. */
    onesweep_buffer *late;
    OK(onesweep_file_take(hoard.kept[0], &late));
    /* Kept twice, freed twice. */
    onesweep_file_keep(hoard.kept[1]);
    onesweep_file_free(hoard.kept[1]);
    CHECK(pthread_create(&thread, NULL, free_all, &hoard) == 0 && pthread_join(thread, NULL) == 0);
    CHECK(onesweep_buffer_size(late) == SIZE && same_bytes(onesweep_buffer_data(late), SIZE, 0, 7));
    onesweep_buffer_free(late);

    /* Never given back: first a word, then the end. */
    OK(onesweep_options_set_budget(options, 256 << 10));
    OK(onesweep_options_set_large(options, 64 << 10));
    memset(&hoard, 0, sizeof hoard);
    GIVES(ONESWEEP_ERROR_CANCELLED, onesweep_bulk_read(paths, 1, options, keep, &hoard, &counts));
    CHECK(hoard.lent == 1 && hoard.stopped == 1 && hoard.count > 0 && hoard.count < FILES && counts.cancelled);
    free_all(&hoard);
    /* Given back when told: all of them come. */
    memset(&hoard, 0, sizeof hoard);
    hoard.gives_back = 1;
    OK(onesweep_bulk_read(paths, 1, options, keep, &hoard, &counts));
    CHECK(hoard.lent > 0 && hoard.stopped == 0 && counts.files == FILES && counts.errors == 0);
    free_all(&hoard);
    /* Taken over: they are no part of the budget. */
    memset(&hoard, 0, sizeof hoard);
    OK(onesweep_bulk_read(paths, 1, options, take, &hoard, &counts));
    CHECK(hoard.count == FILES && counts.taken_over_bytes >= (uint64_t)FILES * SIZE && counts.peak_budget <= 256 << 10);
    onesweep_options_free(options);
    for (int at = 0; at < FILES; at++) {
        unsigned char *own = onesweep_buffer_data(hoard.taken[at]);
        CHECK(onesweep_buffer_size(hoard.taken[at]) == SIZE && own == hoard.data[at] && same_bytes(own, SIZE, 0, 7));
        memset(own, 0, SIZE);
        onesweep_buffer_free(hoard.taken[at]);
    }
    return 0;
}
