/* Goal: what a server says comes through, each refusal and each breach too. Arguments: a directory, the server's socket, and whether
   that server is a real one that tracks the directory. The other one answers by the name of the directory. */
#include "check.h"
#include <sys/socket.h>
#include <sys/un.h>

static void check_figures(const onesweep_summary *summary, int64_t begins)
{
    CHECK(summary->total.bytes == begins && summary->total.directory_bytes == begins + 1);
    CHECK(summary->total.allocated == begins + 2 && summary->total.freed == begins + 3);
    CHECK(summary->total.files == begins + 4 && summary->total.directories == begins + 5);
    CHECK(summary->total.others == begins + 6 && summary->own.bytes == begins + 10 && summary->own.others == begins + 16);
    CHECK(summary->reserved[0] == 0);
}

struct question {
    onesweep_service *service;
    const char *directory;
};

static void *ask_until_stopped(void *user)
{
    struct question *question = user;
    onesweep_summary summary;
    GIVES(ONESWEEP_ERROR_CANCELLED, onesweep_service_summary(question->service, question->directory, 0, &summary));
    CHECK(strstr(onesweep_last_message(), question->directory) && onesweep_last_errno() == 0);
    return NULL;
}

/* A question that waits for its answer is stopped by another thread, with one that waits for its turn and one that comes later. */
static void stop_questions(const char *top, const char *socket_path)
{
    onesweep_service *service;
    onesweep_summary summary;
    struct stat stat;
    pthread_t asks, waits;
    CHECK(mkdir(in(top, "waits"), 0755) == 0);
    OK(onesweep_service_connect(socket_path, &service));
    struct question first = {service, in(top, "waits")}, second = {service, in(top, "answers")};
    CHECK(pthread_create(&asks, NULL, ask_until_stopped, &first) == 0);
    const char *asked = in(top, "waits/asked");
    while (lstat(asked, &stat) != 0)
        CHECK(errno == ENOENT && usleep(1000) == 0);
    /* Until the first has ended it has no turn, and then there is no answer. */
    CHECK(pthread_create(&waits, NULL, ask_until_stopped, &second) == 0);
    onesweep_service_stop(service);
    CHECK(pthread_join(asks, NULL) == 0 && pthread_join(waits, NULL) == 0);
    GIVES(ONESWEEP_ERROR_CANCELLED, onesweep_service_summary(service, in(top, "answers"), 0, &summary));
    onesweep_service_stop(service);
    onesweep_service_stop(NULL);
    onesweep_service_free(service);

    /* Others go on. */
    OK(onesweep_service_connect(socket_path, &service));
    OK(onesweep_service_summary(service, in(top, "answers"), 0, &summary));
    onesweep_service_stop(service);
    GIVES(ONESWEEP_ERROR_CANCELLED, onesweep_service_summary(service, in(top, "answers"), 0, &summary));
    onesweep_service_free(service);
}

static void ask_stand_in(const char *top, const char *socket_path)
{
    onesweep_service *service;
    onesweep_summary summary;
    static const char *names[] = {"answers", "partial", "untracked", "denied", "fails", "nonsense", "ends", "without"};
    for (size_t at = 0; at < sizeof names / sizeof *names; at++)
        CHECK(mkdir(in(top, names[at]), 0755) == 0);

    OK(onesweep_service_connect(socket_path, &service));
    /* The stand-in adds 100 for each step of freshness. */
    OK(onesweep_service_summary(service, in(top, "answers"), ONESWEEP_FRESHNESS_EXACT, &summary));
    check_figures(&summary, 1000);
    CHECK(summary.has_newest && summary.newest == 7 && summary.has_largest && summary.largest == 8);
    CHECK(summary.harvested_at == 9 && summary.unreadable == 10 && summary.is_exact && !summary.is_partial);
    OK(onesweep_service_summary(service, in(top, "answers"), ONESWEEP_FRESHNESS_CACHED, &summary));
    check_figures(&summary, 1100);
    int fd = open(in(top, "answers"), O_PATH | O_DIRECTORY);
    OK(onesweep_service_summary_fd(service, fd, ONESWEEP_FRESHNESS_SYNCED, &summary));
    check_figures(&summary, 1200);
    CHECK(close(fd) == 0);
    OK(onesweep_service_summary(service, in(top, "partial"), ONESWEEP_FRESHNESS_EXACT, &summary));
    CHECK(!summary.has_newest && summary.newest == 0 && !summary.has_largest && !summary.is_exact && summary.is_partial);

    GIVES(ONESWEEP_ERROR_NOT_TRACKED, onesweep_service_summary(service, in(top, "untracked"), 0, &summary));
    CHECK(strstr(onesweep_last_message(), in(top, "untracked")));
    GIVES(ONESWEEP_ERROR_DENIED, onesweep_service_summary(service, in(top, "denied"), 0, &summary));
    GIVES(ONESWEEP_ERROR_REFUSED, onesweep_service_summary(service, in(top, "fails"), 0, &summary));
    CHECK(strstr(onesweep_last_message(), "the store is in pieces"));
    GIVES(ONESWEEP_ERROR_ROOT, onesweep_service_summary(service, in(top, "missing"), 0, &summary));
    CHECK(onesweep_last_errno() == ENOENT);
    GIVES(ONESWEEP_ERROR_ARGUMENT, onesweep_service_summary(service, in(top, "answers"), 3, &summary));
    GIVES(ONESWEEP_ERROR_ARGUMENT, onesweep_service_summary(service, NULL, 0, &summary));
    GIVES(ONESWEEP_ERROR_ARGUMENT, onesweep_service_summary_fd(service, -1, 0, &summary));
    /* After a refusal it goes on. */
    OK(onesweep_service_summary(service, in(top, "answers"), 0, &summary));
    GIVES(ONESWEEP_ERROR_CONNECTION, onesweep_service_summary(service, in(top, "nonsense"), 0, &summary));
    onesweep_service_free(service);

    /* The path of the socket by the environment; a server that ends is an error each time, and no signal. */
    CHECK(setenv("ONESWEEP_SOCKET", socket_path, 1) == 0);
    OK(onesweep_service_connect(NULL, &service));
    GIVES(ONESWEEP_ERROR_CONNECTION, onesweep_service_summary(service, in(top, "without"), 0, &summary));
    onesweep_service_free(service);
    OK(onesweep_service_connect(NULL, &service));
    for (int times = 0; times < 3; times++)
        GIVES(ONESWEEP_ERROR_CONNECTION, onesweep_service_summary(service, in(top, "ends"), 0, &summary));
    onesweep_service_free(service);

    service = (onesweep_service *)&summary;
    GIVES(ONESWEEP_ERROR_NO_SERVER, onesweep_service_connect(in(top, "nobody"), &service));
    CHECK(!service && onesweep_last_errno() == ENOENT && strstr(onesweep_last_message(), "nobody"));
    GIVES(ONESWEEP_ERROR_ARGUMENT, onesweep_service_connect(socket_path, NULL));
    stop_questions(top, socket_path);
}

static void ask_real_one(const char *top, const char *socket_path)
{
    onesweep_service *service;
    onesweep_summary summary;
    struct stat stat;
    CHECK(mkdir(in(top, "one"), 0755) == 0 && mkdir(in(top, "one/two"), 0755) == 0);
    make_file(in(top, "one/a"), 5000, 1);
    make_file(in(top, "one/two/b"), 300, 1);
    OK(onesweep_service_connect(socket_path, &service));
    OK(onesweep_service_summary(service, in(top, "one"), ONESWEEP_FRESHNESS_SYNCED, &summary));
    CHECK(summary.total.bytes == 5300 && summary.own.bytes == 5000 && summary.total.files == 2 && summary.own.files == 1);
    CHECK(summary.total.directories == 2 && summary.largest == 5000 && summary.is_exact && !summary.is_partial);
    CHECK(lstat(in(top, "one/a"), &stat) == 0);
    int64_t allocated = stat.st_blocks * 512;
    static const char *others[] = {"one", "one/two", "one/two/b"};
    for (size_t at = 0; at < 3; at++) {
        CHECK(lstat(in(top, others[at]), &stat) == 0);
        allocated += stat.st_blocks * 512;
    }
    CHECK(summary.total.allocated == allocated);
    /* What changes is in the next answer. */
    make_file(in(top, "one/two/c"), 77, 1);
    int fd = open(in(top, "one/two"), O_RDONLY | O_DIRECTORY);
    OK(onesweep_service_summary_fd(service, fd, ONESWEEP_FRESHNESS_EXACT, &summary));
    CHECK(summary.total.bytes == 377 && summary.total.files == 2 && close(fd) == 0);
    GIVES(ONESWEEP_ERROR_NOT_TRACKED, onesweep_service_summary(service, "/proc", ONESWEEP_FRESHNESS_EXACT, &summary));
    onesweep_service_free(service);
}

int main(int argc, char **argv)
{
    CHECK(argc == 3 || argc == 4);
    (argc == 4 ? ask_real_one : ask_stand_in)(argv[1], argv[2]);
    return 0;
}
