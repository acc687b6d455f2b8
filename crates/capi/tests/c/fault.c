/* Goal: a panic inside the library comes out as an error, and the next call works. Linked statically. */
#include "check.h"

/* In test builds alone, and not in the shared library. */
extern onesweep_error onesweep_panic_for_tests(void);

int main(void)
{
    GIVES(ONESWEEP_ERROR_FAULT, onesweep_panic_for_tests());
    CHECK(strlen(onesweep_last_message()) > 0 && onesweep_last_errno() == 0);
    int files = 0;
    const char *paths[] = {"/proc/self/status"};
    OK(onesweep_bulk_read(paths, 1, NULL, count_files, &files, NULL));
    CHECK(files == 1);
    return 0;
}
