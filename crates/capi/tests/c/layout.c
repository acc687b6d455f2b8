/* Goal: scores and times of directories add up, say the same by path and by descriptor, and failures come to the callback. */
#include "check.h"

enum { FILES = 12, BLOCKS = 5 };

// A turn of the model's disk, at 7200 revolutions per minute, rounded up.
#define TURN_SECONDS 0.0084

struct sums {
    int directories, failures, stops;
    uint64_t files, placed, blocks, pairs, seeks;
    char fs_type[64];
};

static int add(void *user, const onesweep_directory *directory)
{
    struct sums *sums = user;
    if (directory->failure) {
        CHECK(!directory->disk && !directory->device && !directory->fs_type && directory->layout.files == 0);
        CHECK(directory->failure->code == ONESWEEP_ERROR_IO && directory->failure->error_number == ENOENT);
        CHECK(strcmp(directory->path, directory->failure->path) == 0);
        sums->failures++;
        return ONESWEEP_CONTINUE;
    }
    const onesweep_layout_figures *layout = &directory->layout;
    CHECK(directory->path && directory->disk && directory->device && directory->block_bytes >= 512);
    CHECK(layout->bytes == layout->blocks * directory->block_bytes);
    if (layout->before.layout.pairs > 0)
        CHECK(layout->before.layout.ratio >= 0 && layout->before.layout.ratio <= 1);
    else
        CHECK(layout->before.layout.ratio == -1);
    if (layout->placed_files > 1)
        CHECK(layout->packed.layout.ratio == 1 && layout->packed.dynamic.ratio == 1 && layout->packed.seeks <= 1);
    snprintf(sums->fs_type, sizeof sums->fs_type, "%s", directory->fs_type);
    sums->directories++;
    sums->files += layout->files;
    sums->placed += layout->placed_files;
    sums->blocks += layout->blocks;
    sums->pairs += layout->before.layout.pairs;
    sums->seeks += layout->before.seeks;
    return sums->stops ? ONESWEEP_STOP : ONESWEEP_CONTINUE;
}

int main(int argc, char **argv)
{
    CHECK(argc == 2);
    const char *tree = argv[1];
    CHECK(mkdir(in(tree, "below"), 0755) == 0);
    for (int number = 0; number < FILES; number++) {
        char name[32];
        snprintf(name, sizeof name, "%sf%d", number % 2 ? "below/" : "", number);
        make_file(in(tree, name), BLOCKS * 4096, 1);
    }
    sync();
    const char *paths[] = {tree, in(tree, "missing")};
    onesweep_layout_figures total, by_fd;
    for (uint32_t reader = ONESWEEP_READER_READDIR; reader <= ONESWEEP_READER_NAME; reader++) {
        struct sums sums = {0};
        OK(onesweep_layout(paths, 2, NULL, reader, add, &sums, &total));
        CHECK(sums.directories == 2 && sums.failures == 1 && sums.files == FILES && total.files == FILES);
        CHECK(total.placed_files == sums.placed && total.blocks == sums.blocks && total.before.seeks == sums.seeks);
        CHECK(total.before.layout.pairs == sums.pairs && total.reserved[0] == 0);
        if (strcmp(sums.fs_type, "ext4") == 0 || strcmp(sums.fs_type, "xfs") == 0) {
            CHECK(total.placed_files == FILES && total.unknown_files == 0 && total.before.seconds > 0);
            CHECK(total.blocks == FILES * BLOCKS && total.before.layout.pairs == FILES * (BLOCKS - 1));
            CHECK(total.before.fragments >= FILES && total.packed.fragments == FILES);
            // Where files lie well already, another first place can cost the wait for it: a turn of the disk for each directory.
            CHECK(total.packed.seeks <= total.before.seeks);
            CHECK(total.packed.seconds <= total.before.seconds + sums.directories * TURN_SECONDS);
        }
        int fd = open(tree, O_RDONLY | O_DIRECTORY);
        OK(onesweep_layout_fd(&fd, 1, NULL, reader, add, &sums, &by_fd));
        CHECK(close(fd) == 0);
        CHECK(by_fd.blocks == total.blocks && by_fd.before.seeks == total.before.seeks);
        CHECK(by_fd.before.dynamic.contiguous == total.before.dynamic.contiguous);
    }
    // How content would be read doesn't count, so nothing of it is an error.
    onesweep_options *unused = onesweep_options_new();
    OK(onesweep_options_set_flags(unused, ONESWEEP_DEVICE));
    OK(onesweep_options_set_strategy(unused, ONESWEEP_STRATEGY_MERGED));
    struct sums as_before = {0};
    OK(onesweep_layout(paths, 2, unused, ONESWEEP_READER_NAME, add, &as_before, &by_fd));
    CHECK(as_before.files == FILES && by_fd.blocks == total.blocks && by_fd.before.seeks == total.before.seeks);
    onesweep_options_free(unused);
    struct sums sums = {.stops = 1};
    GIVES(ONESWEEP_ERROR_CANCELLED, onesweep_layout(paths, 1, NULL, ONESWEEP_READER_NAME, add, &sums, NULL));
    CHECK(sums.directories == 1);
    onesweep_options *options = onesweep_options_new();
    onesweep_cancel *cancel = onesweep_cancel_new();
    OK(onesweep_options_set_cancel(options, cancel));
    onesweep_cancel_throw(cancel);
    GIVES(ONESWEEP_ERROR_CANCELLED, onesweep_layout(paths, 1, options, ONESWEEP_READER_NAME, add, &sums, NULL));
    onesweep_options_free(options);
    onesweep_cancel_free(cancel);
    GIVES(ONESWEEP_ERROR_ARGUMENT, onesweep_layout(paths, 1, NULL, 3, add, &sums, NULL));
    GIVES(ONESWEEP_ERROR_ARGUMENT, onesweep_layout(paths, 1, NULL, ONESWEEP_READER_NAME, NULL, &sums, NULL));
    GIVES(ONESWEEP_ERROR_ROOT, onesweep_layout(paths + 1, 1, NULL, ONESWEEP_READER_NAME, add, &sums, NULL));
    GIVES(ONESWEEP_ERROR_NO_ROOTS, onesweep_layout_fd(NULL, 0, NULL, ONESWEEP_READER_NAME, add, &sums, NULL));
    return 0;
}
