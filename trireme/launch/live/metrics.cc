#include "trireme/launch/live/metrics.h"

#include <fmt/format.h>

#include <cmath>
#include <functional>
#include <optional>

#include "trireme/core/text.h"
#include "trireme/core/version.h"

namespace trireme::launch {
namespace {

// In a label's value (exposition formats, "escaping").
std::string label_text(const std::string& text) {
  std::string escaped;
  for (const char c : printable(text)) {
    if (c == '\\' || c == '"') escaped += '\\';
    escaped += c;
  }
  return escaped;
}

std::string value_text(double value) {
  if (std::isnan(value)) return "NaN";
  if (std::isinf(value)) return value > 0 ? "+Inf" : "-Inf";
  return fmt::format("{}", value);
}

class Writer {
 public:
  void begin(const char* name, const char* type, const char* meaning) {
    name_ = name;
    head_ = fmt::format("# HELP {0} {2}\n# TYPE {0} {1}\n", name, type, meaning);
  }
  /// A family without samples is left out.
  void sample(const std::string& labels, double value) {
    text_ += std::exchange(head_, {});
    text_ += labels.empty() ? name_ : fmt::format("{}{{{}}}", name_, labels);
    text_ += fmt::format(" {}\n", value_text(value));
  }
  std::string take() { return std::move(text_); }

 private:
  const char* name_ = "";
  std::string head_;
  std::string text_;
};

std::string rank_labels(const RankView& rank) {
  return fmt::format("rank=\"{}\",host=\"{}\"", rank.rank, label_text(rank.host));
}

struct RankMetric {
  const char* name;
  const char* type;
  const char* meaning;
  std::function<std::optional<double>(const RankView&)> value;
};

std::optional<double> known(double value) {
  return value < 0 ? std::nullopt : std::optional(value);
}

const std::vector<RankMetric>& rank_metrics() {
  static const std::vector<RankMetric> table = {
      {"trireme_rank_up", "gauge", "1: the rank's process runs.",
       [](const RankView& rank) { return std::optional(rank.ended ? 0.0 : 1.0); }},
      {"trireme_rank_step", "gauge", "The step that the rank is in.",
       [](const RankView& rank) { return known(static_cast<double>(rank.step)); }},
      {"trireme_rank_steps_per_second", "gauge", "Over the last 10 s.",
       [](const RankView& rank) { return known(rank.steps_per_second); }},
      {"trireme_rank_samples_total", "counter", "Samples that the rank has taken.",
       [](const RankView& rank) {
         return rank.samples > 0 ? std::optional(static_cast<double>(rank.samples)) : std::nullopt;
       }},
      {"trireme_rank_cpu_seconds_total", "counter", "Processor time of the rank's process.",
       [](const RankView& rank) { return known(rank.cpu_seconds); }},
      {"trireme_rank_resident_memory_bytes", "gauge", "Memory of the rank's process.",
       [](const RankView& rank) { return known(rank.memory); }},
      {"trireme_rank_wait_seconds", "gauge", "How long the rank has been in the operation that it is in; 0: in none.",
       [](const RankView& rank) {
         return rank.records ? std::optional(static_cast<double>(rank.waits_ms) / 1000) : std::nullopt;
       }},
      {"trireme_rank_lost_events_total", "counter", "Events that came faster than the launcher read them.",
       [](const RankView& rank) {
         return rank.records ? std::optional(static_cast<double>(rank.lost)) : std::nullopt;
       }},
  };
  return table;
}

void add_shares(Writer& writer, const std::vector<RankView>& ranks) {
  writer.begin("trireme_rank_time_ratio", "gauge", "Share of the last 10 s, by what the rank did.");
  for (const RankView& rank : ranks) {
    if (!rank.records) continue;
    const auto sample = [&](const char* what, double value) {
      writer.sample(fmt::format("{},what=\"{}\"", rank_labels(rank), what), value);
    };
    sample("compute", rank.shares.compute);
    sample("communication", rank.shares.communication);
    sample("data", rank.shares.data);
  }
}

void add_operations(Writer& writer, const std::vector<RankView>& ranks) {
  const auto family = [&](const char* name, const char* meaning, auto value) {
    writer.begin(name, "counter", meaning);
    for (const RankView& rank : ranks)
      for (const auto& [operation, totals] : rank.operations)
        writer.sample(fmt::format("{},operation=\"{}\"", rank_labels(rank), label_text(operation)), value(totals));
  };
  using Totals = const OperationTotals&;
  family("trireme_operations_total", "Operations of groups that have ended.",
         [](Totals totals) { return static_cast<double>(totals.count); });
  family("trireme_operation_bytes_total", "Bytes of their arguments.",
         [](Totals totals) { return static_cast<double>(totals.bytes); });
  family("trireme_operation_seconds_total", "Time in them.", [](Totals totals) { return totals.seconds; });
}

void add_values(Writer& writer, const std::vector<RankView>& ranks) {
  writer.begin("trireme_value", "gauge", "The last number that the rank has reported under this name.");
  for (const RankView& rank : ranks)
    for (const auto& [name, value] : rank.values)
      writer.sample(fmt::format("{},name=\"{}\"", rank_labels(rank), label_text(name)), value);
}

}  // namespace

std::string metrics_text(const JobView& job) {
  Writer writer;
  writer.begin("trireme_job_info", "gauge", "1, with facts about the job.");
  writer.sample(fmt::format("job_id=\"{}\",version=\"{}\"", label_text(job.job_id), kVersion), 1);
  writer.begin("trireme_job_running", "gauge", "1: the job runs; 0: it has ended.");
  writer.sample("", job.state == "running" ? 1 : 0);
  writer.begin("trireme_job_ranks", "gauge", "Ranks of the job.");
  writer.sample("", job.world_size);
  writer.begin("trireme_job_restarts_total", "counter", "How often the job was restarted.");
  writer.sample("", job.restarts);
  for (const RankMetric& metric : rank_metrics()) {
    writer.begin(metric.name, metric.type, metric.meaning);
    for (const RankView& rank : job.ranks)
      if (const auto value = metric.value(rank)) writer.sample(rank_labels(rank), *value);
  }
  add_shares(writer, job.ranks);
  add_operations(writer, job.ranks);
  add_values(writer, job.ranks);
  return writer.take();
}

}  // namespace trireme::launch
