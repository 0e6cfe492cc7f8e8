#include "trireme/launch/live/job_report.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <optional>

#include "trireme/core/base64.h"
#include "trireme/core/error.h"
#include "trireme/core/file.h"
#include "trireme/core/text.h"
#include "trireme/core/token.h"
#include "trireme/launch/live/log_tail.h"
#include "trireme/launch/live/page_files.h"

namespace trireme::launch {
namespace {

using Json = nlohmann::ordered_json;

std::string replaced(std::string text, std::string_view what, std::string_view by) {
  const size_t at = text.find(what);
  if (at == std::string::npos) throw SystemError(0, "the page has no {}", what);
  return text.replace(at, what.size(), by);
}

std::string hash_of(std::string_view text) {
  return fmt::format("'sha256-{}'", base64_encode(sha256(text)));
}

// Within a script element nothing may look like its end.
std::string without_markup(std::string json) {
  for (size_t at = json.find('<'); at != std::string::npos; at = json.find('<', at)) json.replace(at, 1, "\\u003c");
  return json;
}

Json parse_history(const std::string& text) try {
  Json history = Json::parse(text);
  for (const char* part : {"state", "curves", "timelines", "logs"}) history.at(part);
  return history;
} catch (const nlohmann::json::exception& error) {
  throw UsageError("history.json cannot be read ({}): it is of another version, or damaged", printable(error.what()));
}

std::string text_of(const Json& value) {
  return value.is_string() ? value.get<std::string>() : "";
}

// The end of the log, or where the log is. A history names the files of its own folder, and the places of all others.
std::optional<std::string> log_of(int rank, const Json& entry, const std::filesystem::path& log_dir) {
  if (entry.contains("host") && entry.contains("path"))
    return fmt::format("the log of rank {} is on {}: {}\n", rank, text_of(entry["host"]), text_of(entry["path"]));
  const std::filesystem::path file = text_of(entry);
  if (file.empty() || file != file.filename()) return std::nullopt;
  return log_tail(log_dir / file);
}

}  // namespace

std::string report_html(const std::string& history, const std::map<int, std::string>& logs) {
  Json data = parse_history(history);
  data["logs"] = Json::object();
  for (const auto& [rank, text] : logs) data["logs"][std::to_string(rank)] = printable_lines(text);
  const std::string policy = fmt::format(
      "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src {}; script-src {}; img-src "
      "data:\">\n",
      hash_of(page::kCss), hash_of(page::kJs));
  std::string html = replaced(std::string(page::kHtml), "<link rel=\"stylesheet\" href=\"app.css\">",
                              fmt::format("{}<style>{}</style>", policy, page::kCss));
  html = replaced(std::move(html), "<script src=\"app.js\" defer></script>\n", "");
  const std::string json = without_markup(data.dump(-1, ' ', false, Json::error_handler_t::replace));
  return replaced(
      std::move(html), "</body>",
      fmt::format("<script type=\"application/json\" id=\"report-data\">{}</script>\n<script>{}</script>\n</body>",
                  json, page::kJs));
}

std::string job_report(const std::filesystem::path& log_dir) {
  const auto history = read_file(log_dir / "history.json");
  if (!history)
    throw UsageError("{}: there is no history.json; give the --log_dir of a job (that of node 0)", log_dir.string());
  std::map<int, std::string> logs;
  const Json parsed = parse_history(*history);
  for (const auto& [name, entry] : parsed.at("logs").items()) {
    const auto rank = static_cast<int>(parse_int(name, 0, 1 << 20).value_or(-1));
    if (auto log = log_of(rank, entry, log_dir); log && rank >= 0) logs[rank] = std::move(*log);
  }
  return report_html(*history, logs);
}

}  // namespace trireme::launch
