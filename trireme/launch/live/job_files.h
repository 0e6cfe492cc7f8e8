// The files that node 0 keeps in the log folder of its job.
//
//   JobFiles files("log");
//   files.write_url(dashboard.url(true));
//   files.write_state(job);                              // live.json and progress.json
//   files.write_history({.job = job, …});                // history.json
//
// A file that cannot be written is logged once; the job goes on. Thread rule: one thread at a time.
#pragma once

#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "trireme/launch/live/job_totals.h"
#include "trireme/launch/live/node_collector.h"
#include "trireme/launch/live/page_json.h"

namespace trireme::launch {

/// For `trireme report`.
struct History {
  JobView job = {};
  NamedCurves curves = {};
  std::vector<RankTimeline> timelines = {};
  std::vector<RankFacts> world = {};
};

class JobFiles {
 public:
  explicit JobFiles(std::filesystem::path folder) : folder_(std::move(folder)) {}

  /// Readable by the owner alone: it may hold the page's token. Throws SystemError.
  void write_url(const std::string& url) const;
  void remove_url() const;
  void write_state(const JobView& job);
  void write_history(const History& history);
  /// Whether the file could be written.
  bool write(const char* name, const std::string& text);
  std::string path_of(const char* name) const { return (folder_ / name).string(); }

 private:
  const std::filesystem::path folder_;
  std::string unwritten_;  // the file whose failure was logged
};

}  // namespace trireme::launch
