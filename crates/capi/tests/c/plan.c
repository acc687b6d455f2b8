/* Goal: plans tell what they cost and in which order they read, keep to it when they are carried out once, and tell of progress. */
#include "check.h"
#include <stdatomic.h>

enum { FILES = 30, SIZE = 10000 };

struct order {
    int planned, read;
    char paths[FILES][PATH_MAX];
};

static int note_planned(void *user, const onesweep_planned_file *file)
{
    struct order *order = user;
    CHECK(order->planned < FILES && file->size == SIZE && file->disk);
    CHECK(file->has_address || file->address == 0);
    CHECK(!file->is_dirty && !file->is_encrypted);
    snprintf(order->paths[order->planned++], PATH_MAX, "%s", file->path);
    return ONESWEEP_CONTINUE;
}

static int check_order(void *user, onesweep_file *file)
{
    struct order *order = user;
    CHECK(strcmp(order->paths[order->read++], onesweep_file_path(file)) == 0);
    return ONESWEEP_CONTINUE;
}

static int look_at_disk(void *user, const onesweep_disk_plan *plan)
{
    CHECK(strlen(plan->disk) > 0 && plan->order == ONESWEEP_ORDER_INODE && plan->estimate.files == FILES);
    CHECK(!plan->remark || strlen(plan->remark) > 0);
    ++*(int *)user;
    return ONESWEEP_CONTINUE;
}

static int stop(void *user, const onesweep_disk_plan *plan)
{
    CHECK(plan);
    ++*(int *)user;
    return ONESWEEP_STOP;
}

static void hear(void *user, const onesweep_progress *progress)
{
    atomic_uint *heard = user;
    CHECK(progress->kind >= ONESWEEP_PROGRESS_WALKED && progress->kind <= ONESWEEP_PROGRESS_STREAMED);
    if (progress->kind == ONESWEEP_PROGRESS_PLANNED)
        CHECK(progress->text && progress->count == FILES && progress->bytes == FILES * SIZE);
    if (progress->kind == ONESWEEP_PROGRESS_READ || progress->kind == ONESWEEP_PROGRESS_WALKED)
        CHECK(!progress->text);
    atomic_fetch_or(heard, 1u << progress->kind);
}

int main(int argc, char **argv)
{
    CHECK(argc == 2);
    const char *tree = argv[1];
    for (int number = 0; number < FILES; number++) {
        char name[16];
        snprintf(name, sizeof name, "f%d", number);
        make_file(in(tree, name), SIZE, 1);
    }
    sync();
    onesweep_options *options = onesweep_options_new();
    OK(onesweep_options_set_flags(options, ONESWEEP_IGNORE_CACHE | ONESWEEP_ONE_AT_A_TIME | ONESWEEP_ADDRESSES));
    OK(onesweep_options_set_order(options, ONESWEEP_ORDER_INODE));
    OK(onesweep_options_set_disk_model(options, "modern-20tb"));
    OK(onesweep_options_set_reassembly(options, ONESWEEP_REASSEMBLY_THRESHOLD, 1 << 20));
    OK(onesweep_options_set_catalog_limit(options, 64 << 20));
    OK(onesweep_options_set_bandwidth_limit(options, 1ull << 40));
    OK(onesweep_options_set_gap(options, 1 << 20));
    OK(onesweep_options_set_max_request(options, 1 << 20));
    OK(onesweep_options_set_freeze_limit(options, 1000));
    OK(onesweep_options_set_cache(options, ONESWEEP_CACHE_FILL));
    OK(onesweep_options_set_metadata(options, ONESWEEP_METADATA_WALK));
    atomic_uint heard = 0;
    OK(onesweep_options_set_progress(options, hear, &heard));

    onesweep_plan *plan;
    onesweep_estimate estimate, other;
    struct order *order = calloc(1, sizeof *order);
    CHECK(order);
    int fd = open(tree, O_RDONLY | O_DIRECTORY);
    OK(onesweep_plan_new_fd(&fd, 1, options, &plan));
    onesweep_options_free(options); /* a plan has all it needs */
    CHECK(close(fd) == 0);
    OK(onesweep_plan_estimate(plan, &estimate));
    CHECK(estimate.files == FILES && estimate.useful >= FILES * SIZE && estimate.requests > 0 && estimate.seconds > 0);
    CHECK(estimate.read == estimate.useful - estimate.copied + estimate.wasted && estimate.reserved[3] == 0);
    OK(onesweep_plan_estimate_with(plan, ONESWEEP_ORDER_FRAGMENT, ONESWEEP_STRATEGY_VANILLA, &other));
    CHECK(other.files == FILES && other.requests >= estimate.requests);
    OK(onesweep_plan_estimate_with(plan, ONESWEEP_ORDER_FRAGMENT, ONESWEEP_STRATEGY_AUTO, &other));
    GIVES(ONESWEEP_ERROR_ARGUMENT, onesweep_plan_estimate_with(plan, 9, ONESWEEP_STRATEGY_AUTO, &other));
    GIVES(ONESWEEP_ERROR_ARGUMENT, onesweep_plan_estimate_with(plan, ONESWEEP_ORDER_AUTO, 9, &other));
    int disks = 0;
    OK(onesweep_plan_disks(plan, look_at_disk, &disks));
    CHECK(disks == 1);
    GIVES(ONESWEEP_ERROR_CANCELLED, onesweep_plan_disks(plan, stop, &disks));
    CHECK(disks == 2 && !onesweep_plan_is_partial(plan));
    OK(onesweep_plan_files(plan, note_planned, order));
    CHECK(order->planned == FILES);
    onesweep_counts counts;
    OK(onesweep_plan_run(plan, check_order, order, &counts));
    CHECK(order->read == FILES && counts.files == FILES && counts.requests > 0);
    unsigned all = 1u << ONESWEEP_PROGRESS_PLANNED;
    CHECK((atomic_load(&heard) & all) == all);

    /* Once. */
    GIVES(ONESWEEP_ERROR_USED, onesweep_plan_run(plan, check_order, order, &counts));
    GIVES(ONESWEEP_ERROR_USED, onesweep_plan_files(plan, note_planned, order));
    GIVES(ONESWEEP_ERROR_USED, onesweep_plan_disks(plan, stop, &disks));
    GIVES(ONESWEEP_ERROR_USED, onesweep_plan_estimate(plan, &estimate));
    CHECK(!onesweep_plan_is_partial(plan));
    onesweep_plan_free(plan);

    /* A tree whose names pass their limit is planned in parts, and read as a whole. */
    for (int number = 0; number < 400; number++) {
        char name[32];
        snprintf(name, sizeof name, "part%d", number);
        CHECK(mkdir(in(tree, name), 0755) == 0);
        snprintf(name, sizeof name, "part%d/f", number);
        make_file(in(tree, name), 100, 1);
    }
    options = onesweep_options_new();
    OK(onesweep_options_set_catalog_limit(options, 16 << 10));
    const char *paths[] = {tree};
    OK(onesweep_plan_new(paths, 1, options, &plan));
    CHECK(onesweep_plan_is_partial(plan));
    int files = 0;
    OK(onesweep_plan_run(plan, count_files, &files, &counts));
    CHECK(files == FILES + 400 && counts.windows > 1);
    onesweep_plan_free(plan);
    onesweep_options_free(options);

    /* A plan that nobody carries out. */
    OK(onesweep_plan_new(paths, 1, NULL, &plan));
    onesweep_plan_free(plan);
    free(order);
    return 0;
}
