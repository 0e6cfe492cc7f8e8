#include "trireme/io/format/events.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <bit>
#include <cerrno>

#include "trireme/core/crc32c.h"
#include "trireme/core/error.h"
#include "trireme/core/log.h"
#include "trireme/io/format/protobuf.h"

namespace trireme::io {
namespace {

constexpr size_t kBufferBytes = size_t{64} << 10;

// The field numbers below are those of TensorBoard's event.proto, summary.proto and tensor.proto.

// Plain CRCs of data that itself holds CRCs are weak; the format rotates them and adds an offset.
std::string masked_sum(std::string_view bytes) {
  constexpr uint32_t kShift = 0xa282ead8;
  const uint32_t masked = std::rotr(crc32c(bytes), 15) + kShift;
  const auto raw = std::bit_cast<std::array<char, 4>>(masked);
  return {raw.data(), raw.size()};
}

std::string record(const std::string& data) {
  const auto raw = std::bit_cast<std::array<char, 8>>(uint64_t{data.size()});
  const std::string length(raw.data(), raw.size());
  return length + masked_sum(length) + data + masked_sum(data);
}

Message event_now() {
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  return std::move(Message().number(1, std::chrono::duration<double>(now).count()));
}

std::filesystem::path name_of_file() {
  static std::atomic<int> count{0};
  char host[256] = "";
  ::gethostname(host, sizeof host - 1);
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  return fmt::format("events.out.tfevents.{:010}.{}.{}.{}",
                     std::chrono::duration_cast<std::chrono::seconds>(now).count(), host, ::getpid(), count++);
}

}  // namespace

EventWriter::EventWriter(const std::filesystem::path& folder, EventWriterOptions options)
    : options_(options), path_(folder / name_of_file()), flushed_(std::chrono::steady_clock::now()) {
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  if (error) throw SystemError(error.value(), "cannot make the folder {} for event files", folder.string());
  file_.reset(::open(path_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_APPEND | O_CLOEXEC, 0644));
  if (!file_) throw SystemError(errno, "cannot write {}", path_.string());
  buffer_ = record(event_now().bytes(3, "brain.Event:2").text());  // the version, as the first record of each file
  flush();
}

EventWriter::~EventWriter() {
  try {
    flush();
  } catch (const Error& error) {
    log_error("[io] {}", error.what());
  }
}

void EventWriter::add_scalar(std::string_view tag, double value, int64_t step) {
  add_value(Message().bytes(1, tag).number(2, static_cast<float>(value)).text(), step);
}

void EventWriter::add_value(const std::string& value, int64_t step) {
  const Message summary = std::move(Message().bytes(1, value));
  const std::string bytes = record(event_now().integer(2, step).message(5, summary).text());
  const std::lock_guard lock(mutex_);
  buffer_ += bytes;
  const bool due = std::chrono::steady_clock::now() - flushed_ >= options_.flush_every;
  if (due || buffer_.size() >= kBufferBytes) write_out();
}

void EventWriter::flush() {
  const std::lock_guard lock(mutex_);
  write_out();
}

void EventWriter::write_out() {
  flushed_ = std::chrono::steady_clock::now();
  const std::string bytes = std::exchange(buffer_, {});
  struct stat before {};
  if (::fstat(file_.get(), &before) == 0 && write_all(file_.get(), bytes)) return;
  const int error = errno;
  // Half a record would hide all that follow it.
  if (::ftruncate(file_.get(), before.st_size) != 0) log_warning("[io] {} ends in half a record", path_.string());
  throw SystemError(error, "cannot write {} bytes to {}", bytes.size(), path_.string());
}

}  // namespace trireme::io
