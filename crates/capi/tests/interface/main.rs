//! The interface as C has it: the header, the symbols, and programs in C that call every function and meet every error, plainly,
//! under valgrind, and with the address sanitizer, which is in the programs, or in the library too (`make capi-asan-test`).

mod library;
mod programs;
mod server;
mod text;
