#include "trireme/io/async_writer.h"

#include <cerrno>

#include "trireme/core/error.h"
#include "trireme/core/log.h"
#include "trireme/core/quiet_thread.h"

namespace trireme::io {
namespace {

uint64_t bytes_of(const Snapshot& snapshot) {
  uint64_t bytes = 0;
  for (const auto& [file, tensors] : snapshot.tensors)
    for (const auto& item : tensors) bytes += item.value().defined() ? item.value().nbytes() : 0;
  return bytes;
}

}  // namespace

AsyncWriter::AsyncWriter(const CheckpointFolder& folder, AsyncWriterOptions options)
    : AsyncWriter([folder](const std::string& name, const Snapshot& snapshot) { folder.write(name, snapshot); },
                  options) {}

AsyncWriter::AsyncWriter(Write write, AsyncWriterOptions options) : write_(std::move(write)), options_(options) {}

AsyncWriter::~AsyncWriter() {
  if (thread_.joinable()) thread_.join();
  try {
    if (done_.valid()) done_.get();
  } catch (const std::exception& error) {
    log_error("[io] checkpoint {} was not written: {}", name_, error.what());
  }
}

void AsyncWriter::write(const std::string& name, const Snapshot& snapshot) {
  wait();
  write_own(name, copy_of(snapshot));
}

void AsyncWriter::write_own(const std::string& name, Snapshot snapshot) {
  wait();
  std::packaged_task<void()> task([this, name, own = std::move(snapshot)] {
    SlowSave note(name, bytes_of(own), options_.patience);
    write_(name, own);
    note.done();
  });
  std::future<void> done = task.get_future();
  thread_ = start_quiet_thread("the checkpoint writer", std::move(task));
  done_ = std::move(done);
  name_ = name;
}

void AsyncWriter::wait() {
  if (!done_.valid()) return;
  if (done_.wait_for(options_.timeout) != std::future_status::ready)
    throw SystemError(ETIMEDOUT, "checkpoint {} is still being written after {} ms; is the disk of its folder stuck?",
                      name_, options_.timeout.count());
  thread_.join();
  done_.get();
}

}  // namespace trireme::io
