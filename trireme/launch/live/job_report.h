// `trireme report`: the dashboard of a job as one file, made of what the job has left in its log folder.
//
//   write_file_atomically("log/report.html", job_report("log"));
#pragma once

#include <filesystem>
#include <map>
#include <string>

namespace trireme::launch {

/// The page with its data inside: it needs no other file and no network. Throws UsageError when the folder is not the log
/// folder of a job, or its history.json cannot be read.
std::string job_report(const std::filesystem::path& log_dir);

/// The same from a history.json and the ends of the logs by rank. Pure.
std::string report_html(const std::string& history, const std::map<int, std::string>& logs);

}  // namespace trireme::launch
