#include "trireme/launch/live/job_files.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <nlohmann/json.hpp>

#include "trireme/core/error.h"
#include "trireme/core/fd.h"
#include "trireme/core/file.h"
#include "trireme/core/log.h"
#include "trireme/core/text.h"

namespace trireme::launch {
namespace {

constexpr const char* kUrlFile = "dashboard.url";

// Logs of other nodes stay on their machines.
std::string logs_json(const std::vector<RankFacts>& world) {
  nlohmann::json logs = nlohmann::json::object();
  for (const RankFacts& facts : world)
    logs[std::to_string(facts.rank)] =
        facts.node == 0 ? nlohmann::json(std::filesystem::path(facts.log).filename().string())
                        : nlohmann::json({{"host", printable(facts.host)}, {"path", printable(facts.log)}});
  return logs.dump();
}

}  // namespace

void JobFiles::write_url(const std::string& url) const {
  const std::filesystem::path path = folder_ / kUrlFile;
  std::error_code ignored;
  std::filesystem::create_directories(folder_, ignored);
  std::filesystem::remove(path, ignored);
  const UniqueFd file(::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600));
  const std::string text = url + "\n";
  if (!file || ::write(file.get(), text.data(), text.size()) != static_cast<ssize_t>(text.size()))
    throw SystemError(errno, "cannot write {}, which tells the dashboard's address", path.string());
}

void JobFiles::remove_url() const {
  std::error_code ignored;
  std::filesystem::remove(folder_ / kUrlFile, ignored);
}

// live.json is for `trireme top` of the same version, progress.json for other programs.
void JobFiles::write_state(const JobView& job) {
  write("live.json", state_json(job));
  write("progress.json", progress_json(job));
}

void JobFiles::write_history(const History& history) {
  write("history.json",
        fmt::format("{{\"state\":{},\"curves\":{},\"timelines\":{},\"logs\":{}}}\n", state_json(history.job),
                    curves_json(history.curves), timelines_json(history.timelines), logs_json(history.world)));
}

bool JobFiles::write(const char* name, const std::string& text) try {
  std::error_code ignored;
  std::filesystem::create_directories(folder_, ignored);
  write_file_atomically(folder_ / name, text, {.durable = false});
  if (unwritten_ == name) unwritten_.clear();
  return true;
} catch (const SystemError& error) {
  if (unwritten_.empty()) {
    log_warning("{}; the job goes on", printable(error.what()));
    unwritten_ = name;
  }
  return false;
}

}  // namespace trireme::launch
