#include <dlfcn.h>
#include <stdlib.h>
#include <unistd.h>

#include <chrono>

#include "trireme/comm/engine/mpi/library_impl.h"
#include "trireme/core/error.h"

namespace trireme::comm::mpi {
namespace {

// The library loads components of its own, which look for its symbols. A program that links MPI has them in the global
// scope; a plugin has not, so they are put there.
void make_symbols_global() {
  Dl_info library{};
  if (::dladdr(reinterpret_cast<void*>(&MPI_Init_thread), &library) != 0)
    ::dlopen(library.dli_fname, RTLD_NOW | RTLD_GLOBAL | RTLD_NOLOAD);
}

}  // namespace

std::string error_text(int code) {
  char text[MPI_MAX_ERROR_STRING] = "";
  int length = 0;
  if (MPI_Error_string(code, text, &length) != MPI_SUCCESS) return "MPI error " + std::to_string(code);
  return {text, static_cast<size_t>(length)};
}

void check(int code, const char* what) {
  if (code != MPI_SUCCESS) throw PeerError("{}: {}", what, error_text(code));
}

Library& Library::get() {
  static Library& library = *new Library;  // never destroyed: it is needed at exit
  return library;
}

Library::Library() : process_(::getpid()) {
  int initialised = 0;
  int finalised = 0;
  int level = MPI_THREAD_SINGLE;
  check(MPI_Initialized(&initialised), "MPI_Initialized");
  check(MPI_Finalized(&finalised), "MPI_Finalized");
  if (finalised) throw UsageError("MPI has been finalised by the program; make engines before that");
  if (!initialised) initialise();
  check(MPI_Query_thread(&level), "MPI_Query_thread");
  if (level < MPI_THREAD_SERIALIZED)
    throw UsageError(
        "MPI was initialised for calls from one thread only (level {}); initialise it with MPI_Init_thread and "
        "MPI_THREAD_MULTIPLE, or leave it to Trireme",
        level);
  in_threads_ = level >= MPI_THREAD_MULTIPLE;
  check(MPI_Comm_rank(MPI_COMM_WORLD, &world_.rank), "MPI_Comm_rank");
  check(MPI_Comm_size(MPI_COMM_WORLD, &world_.size), "MPI_Comm_size");
}

void Library::initialise() {
  make_symbols_global();
  int level = 0;
  const int code = MPI_Init_thread(nullptr, nullptr, MPI_THREAD_MULTIPLE, &level);
  if (code != MPI_SUCCESS) throw PeerError("MPI_Init_thread: {}", error_text(code));
  ours_ = true;
  MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
  ::on_exit([](int status, void* library) { static_cast<Library*>(library)->leave(status); }, this);
}

// An orderly end needs all processes: MPI_Finalize waits for them. So it is for success only; anything else ends the
// job, since the others would wait for ever.
void Library::leave(int status) {
  if (::getpid() != process_) return;
  const std::unique_lock lock(turn_, std::chrono::seconds(2));
  int finalised = 1;
  if (!lock || MPI_Finalized(&finalised) != MPI_SUCCESS || finalised) return;
  if (status == 0 && !given_up_ && !aborted_ && under_way_ == 0)
    MPI_Finalize();
  else
    MPI_Abort(MPI_COMM_WORLD, status != 0 ? status : exit_code::kPeer);
}

Library::Turn Library::turn() {
  return in_threads_ ? Turn() : Turn(turn_);
}

void Library::give_up(const std::string& reason) {
  const std::lock_guard lock(mutex_);
  if (!given_up_) reason_ = reason;
  given_up_ = true;
}

void Library::check_usable() {
  if (!given_up_) return;
  const std::lock_guard lock(mutex_);
  throw PeerError("MPI cannot be used in this process any more, because an operation failed: {}", reason_);
}

}  // namespace trireme::comm::mpi
