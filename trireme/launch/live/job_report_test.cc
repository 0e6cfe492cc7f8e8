#include "trireme/launch/live/job_report.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "trireme/core/error.h"
#include "trireme/core/file.h"

namespace trireme::launch {
namespace {

using nlohmann::json;
using testing::HasSubstr;
using testing::Not;

constexpr const char* kHistory =
    R"({"state":{"job_id":"</script><script>alert(1)</script>"},"curves":{},"timelines":[],"logs":{"0":"workerlog.0"}})";

json data_of(const std::string& html) {
  const std::string start = "id=\"report-data\">";
  const size_t from = html.find(start) + start.size();
  return json::parse(html.substr(from, html.find("</script>", from) - from));
}

TEST(JobReport, IsOneFileThatAsksNobody) {
  const std::string html = report_html(kHistory, {{0, "a line\n"}});
  EXPECT_THAT(html, Not(HasSubstr("src=\"")));
  EXPECT_THAT(html, Not(HasSubstr("href=\"app.css\"")));
  EXPECT_THAT(html, HasSubstr("default-src 'none'; style-src 'sha256-"));
  EXPECT_EQ(data_of(html).at("logs").at("0"), "a line\n");
}

TEST(JobReport, NothingFromAJobBecomesMarkup) {
  const std::string html = report_html(kHistory, {{0, "</script><img src=x>"}});
  EXPECT_THAT(html, Not(HasSubstr("alert(1)</script>")));
  EXPECT_THAT(html, Not(HasSubstr("<img")));
  EXPECT_EQ(data_of(html).at("state").at("job_id"), "</script><script>alert(1)</script>");
}

TEST(JobReport, OfAFolder) {
  const TempDir folder;
  EXPECT_THROW(job_report(folder.path()), UsageError);
  write_file_atomically(folder.path() / "workerlog.0", "hello\n", {.durable = false});
  write_file_atomically(folder.path() / "history.json", kHistory, {.durable = false});
  EXPECT_EQ(data_of(job_report(folder.path())).at("logs").at("0"), "hello\n");
}

TEST(JobReport, AHistoryNamesFilesOfItsFolderOnly) {
  const TempDir folder;
  write_file_atomically(
      folder.path() / "history.json",
      R"({"state":{},"curves":{},"timelines":[],"logs":{"0":"../../../etc/passwd","1":"/etc/passwd"}})",
      {.durable = false});
  EXPECT_TRUE(data_of(job_report(folder.path())).at("logs").empty());
}

TEST(JobReport, TheLogOfAnotherMachineIsNamed) {
  const TempDir folder;
  write_file_atomically(
      folder.path() / "history.json",
      R"({"state":{},"curves":{},"timelines":[],"logs":{"3":{"host":"beta","path":"/jobs/log/workerlog.1"}}})",
      {.durable = false});
  EXPECT_EQ(data_of(job_report(folder.path())).at("logs").at("3"),
            "the log of rank 3 is on beta: /jobs/log/workerlog.1\n");
}

TEST(JobReport, ADamagedHistory) {
  for (const char* text : {"", "{", "[]", R"({"state":{}})"}) EXPECT_THROW(report_html(text, {}), UsageError) << text;
}

}  // namespace
}  // namespace trireme::launch
