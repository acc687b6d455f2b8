/* Goal: the errors that take root to bring about. Arguments: a directory, one on ext4 of its own, and an image of ext4. */
#include "check.h"
#include <grp.h>
#include <sched.h>
#include <sys/mount.h>

struct told {
    int files, failures;
    onesweep_error code;
    int number;
};

static int note(void *user, onesweep_file *file)
{
    struct told *told = user;
    const onesweep_failure *failure = onesweep_file_failure(file);
    if (failure) {
        told->failures++;
        told->code = failure->code;
        told->number = failure->error_number;
    } else {
        told->files++;
    }
    return ONESWEEP_CONTINUE;
}

static void wait_for(pid_t child)
{
    int status;
    CHECK(child > 0 && waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

int main(int argc, char **argv)
{
    CHECK(argc == 4 && geteuid() == 0);
    const char *top = argv[1], *volume = argv[2], *image = argv[3];
    struct told told = {0};
    onesweep_counts counts;

    /* Nothing can be swept where the table of mounts can't be read. */
    const char *prison = in(top, "prison");
    CHECK(mkdir(prison, 0755) == 0);
    pid_t child = fork();
    if (child == 0) {
        const char *root[] = {"/"};
        CHECK(chroot(prison) == 0 && chdir("/") == 0);
        GIVES(ONESWEEP_ERROR_SYSTEM, onesweep_bulk_read(root, 1, NULL, note, &told, NULL));
        CHECK(onesweep_last_errno() == ENOENT);
        _exit(0);
    }
    wait_for(child);

    /* A directory that is its own ancestor. */
    const char *outer = in(top, "outer"), *inner = in(top, "outer/inner");
    CHECK(mkdir(outer, 0755) == 0 && mkdir(inner, 0755) == 0);
    make_file(in(outer, "f"), 100, 1);
    child = fork();
    if (child == 0) {
        CHECK(unshare(CLONE_NEWNS) == 0 && mount("none", "/", "none", MS_REC | MS_PRIVATE, NULL) == 0);
        CHECK(mount(outer, inner, "none", MS_BIND, NULL) == 0);
        OK(onesweep_bulk_read(&outer, 1, NULL, note, &told, NULL));
        CHECK(told.files == 1 && told.failures == 1 && told.code == ONESWEEP_ERROR_LOOP);
        _exit(0);
    }
    wait_for(child);

    /* What may not be read. */
    make_file(in(top, "secret"), 100, 1);
    CHECK(chmod(in(top, "secret"), 0) == 0);
    child = fork();
    if (child == 0) {
        const char *secret[] = {in(top, "secret")};
        CHECK(setgid(65534) == 0 && setuid(65534) == 0);
        OK(onesweep_bulk_read(secret, 1, NULL, note, &told, NULL));
        CHECK(told.files == 0 && told.failures == 1 && told.code == ONESWEEP_ERROR_IO && told.number == EACCES);
        _exit(0);
    }
    wait_for(child);

    /* Without the rights to either, the kernel's word is passed on. Others can't come to the volume by its own path. */
    child = fork();
    if (child == 0) {
        const char *shown[] = {"/mnt"};
        onesweep_options *own = onesweep_options_new();
        CHECK(unshare(CLONE_NEWNS) == 0 && mount("none", "/", "none", MS_REC | MS_PRIVATE, NULL) == 0);
        CHECK(mount(volume, shown[0], "none", MS_BIND, NULL) == 0);
        CHECK(setgroups(0, NULL) == 0 && setgid(65534) == 0 && setuid(65534) == 0);
        OK(onesweep_options_set_flags(own, ONESWEEP_SNAPSHOT));
        GIVES(ONESWEEP_ERROR_SNAPSHOT, onesweep_bulk_read(shown, 1, own, note, &told, NULL));
        CHECK(onesweep_last_errno() == EPERM);
        OK(onesweep_options_set_flags(own, ONESWEEP_DEVICE));
        GIVES(ONESWEEP_ERROR_DEVICE, onesweep_bulk_read(shown, 1, own, note, &told, NULL));
        /* Valgrind knows no cachestat, without which no device is opened. */
        CHECK(onesweep_last_errno() == EACCES || strstr(onesweep_last_message(), "cachestat"));
        onesweep_options_free(own);
        _exit(0);
    }
    wait_for(child);

    /* No device below, nothing to be held. (Not made before: a child that ends without it would be told to have lost it.) */
    onesweep_options *options = onesweep_options_new();
    const char *process[] = {"/proc/self/status"};
    OK(onesweep_options_set_flags(options, ONESWEEP_DEVICE));
    GIVES(ONESWEEP_ERROR_DEVICE, onesweep_bulk_read(process, 1, options, note, &told, NULL));
    CHECK(strstr(onesweep_last_message(), process[0]) && onesweep_last_errno() == 0);
    OK(onesweep_options_set_flags(options, ONESWEEP_SNAPSHOT));
    GIVES(ONESWEEP_ERROR_SNAPSHOT, onesweep_bulk_read(process, 1, options, note, &told, NULL));
    CHECK(onesweep_last_errno() == EOPNOTSUPP);

    /* One moment, and one that did not last. */
    make_file(in(volume, "held"), 5000, 1);
    const char *paths[] = {volume};
    OK(onesweep_bulk_read(paths, 1, options, note, &told, &counts));
    CHECK(told.files == 1 && told.failures == 0 && counts.errors == 0);
    OK(onesweep_options_set_freeze_limit(options, 0));
    /* Who watches over the time may come to it only when the plan stands: then the moment has lasted. */
    int has_ended = 0;
    for (int times = 0; times < 1000 && !has_ended; times++) {
        memset(&told, 0, sizeof told);
        OK(onesweep_bulk_read(paths, 1, options, note, &told, &counts));
        has_ended = told.failures == 1 && told.code == ONESWEEP_ERROR_NOT_ONE_MOMENT;
        CHECK(told.files == 1 && (has_ended || told.failures == 0));
    }
    CHECK(has_ended);

    /* By the device, held against what was written. */
    onesweep_options_free(options);
    options = onesweep_options_new();
    OK(onesweep_options_set_flags(options, ONESWEEP_DEVICE));
    memset(&told, 0, sizeof told);
    onesweep_error by_device = onesweep_bulk_read(paths, 1, options, note, &told, &counts);
    /* Valgrind knows no cachestat, without which devices aren't read. */
    int is_impossible = by_device == ONESWEEP_ERROR_DEVICE && strstr(onesweep_last_message(), "cachestat");
    CHECK(is_impossible || (by_device == ONESWEEP_OK && told.files == 1 && told.failures == 0 && counts.bytes == 5000));

    /* An image, and a name that isn't in it. */
    OK(onesweep_options_set_flags(options, ONESWEEP_LOST));
    OK(onesweep_options_set_metadata(options, ONESWEEP_METADATA_AUTO));
    char inside[PATH_MAX];
    snprintf(inside, sizeof inside, "%s:/nothing", image);
    const char *images[] = {image, inside};
    memset(&told, 0, sizeof told);
    OK(onesweep_walk(images, 1, options, note, &told, NULL));
    CHECK(told.files > 0 && told.failures == 0);
    onesweep_error whole = onesweep_walk(images + 1, 1, options, note, &told, NULL);
    CHECK(whole == ONESWEEP_OK && told.code == ONESWEEP_ERROR_NOT_INSIDE && told.number == ENOENT);
    onesweep_options_free(options);
    return 0;
}
