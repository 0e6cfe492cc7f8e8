// `trireme infer --model-dir DIR --image FILE|DIR...`
#include <fmt/format.h>
#include <malloc.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <climits>
#include <cstdio>
#include <functional>
#include <nlohmann/json.hpp>

#include "apps/infer_options.h"
#include "apps/infer_pictures.h"
#include "cli/run_main.h"
#include "trireme/core/error.h"
#include "trireme/core/log.h"
#include "trireme/core/text.h"
#include "trireme/deploy/infer/latency.h"

namespace trireme::apps {
namespace {

using infer::Answer, infer::Latency, infer::Predictor, infer::Timing;

constexpr int kFailed = 1;

/// Standard output is broken: neither the model nor the pictures are at fault.
struct CannotPrint : SystemError {
  using SystemError::SystemError;
};

void expect_printed() {
  if (std::fflush(stdout) != 0) throw CannotPrint(errno, "cannot write to standard output");
}

// --- answers, as PaddleClas prints them

/// Without control characters; a character that could be read as one of our own escapes gets a backslash.
std::string escaped(std::string_view text, std::string_view special) {
  std::string shown;
  for (const char c : text) {
    if (c == '\t') {
      shown += "\\t";
      continue;
    }
    if (special.find(c) != std::string_view::npos) shown += '\\';
    shown += c;
  }
  return printable(shown);
}

/// As Python shows a text.
std::string quoted(const std::string& text) {
  const bool has_single = text.find('\'') != std::string::npos, has_double = text.find('"') != std::string::npos;
  const char quote = has_single && !has_double ? '"' : '\'';
  return quote + escaped(text, std::string{'\\', quote}) + quote;
}

std::string line_of(const std::string& name, const infer::Prediction& best, int digits) {
  std::vector<std::string> labels, scores;
  for (const std::string& label : best.label_names) labels.push_back(quoted(label));
  for (const float score : best.scores) scores.push_back(fmt::format("{:.{}f}", score, digits));
  return fmt::format("{}:\tclass id(s): [{}], score(s): [{}], label_name(s): [{}]\n", escaped(name, "\\"),
                     fmt::join(best.class_ids, ", "), join(scores, ", "), join(labels, ", "));
}

/// A JSON object for each picture, also for one without an answer.
std::string json_line_of(const std::string& path, const Answer& answer) {
  nlohmann::ordered_json line{{"image", path}};
  if (answer.ok()) {
    line["class_ids"] = answer.prediction.class_ids;
    line["scores"] = answer.prediction.scores;
    line["label_names"] = answer.prediction.label_names;
  } else {
    line["error"] = answer.error;
  }
  return line.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
}

/// As PaddleClas names a picture; its whole path when names alone might not tell pictures apart.
std::string name_of(const std::filesystem::path& file, const InferOptions& options) {
  const bool single = options.images.size() == 1 && options.lists.empty() && !options.recursive;
  const auto is_given = [&](const std::filesystem::path& image) {  // itself or by its folder, not by a pattern
    return file == image || file == image / file.filename();
  };
  return single && is_given(options.images[0]) ? file.filename().string() : file.string();
}

/// How far it is, on a terminal that shows no answers.
class Progress {
 public:
  explicit Progress(size_t total)
      : total_(total), shown_(::isatty(STDERR_FILENO) != 0 && ::isatty(STDOUT_FILENO) == 0) {}
  ~Progress() { clear(); }
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  void advance(size_t pictures) {
    constexpr auto kPause = std::chrono::milliseconds(100);
    done_ += pictures;
    const auto now = std::chrono::steady_clock::now();
    if (!shown_ || (now < next_ && done_ < total_)) return;
    next_ = now + kPause;
    const double seconds = std::chrono::duration<double>(now - begin_).count();
    fmt::print(stderr, "\r\x1b[K{} of {} pictures, {:.1f}/s", done_, total_, static_cast<double>(done_) / seconds);
    std::fflush(stderr);
  }
  /// Before something else is printed there.
  void clear() const {
    if (shown_) fmt::print(stderr, "\r\x1b[K");
  }

 private:
  const size_t total_;
  const bool shown_;
  size_t done_ = 0;
  const std::chrono::steady_clock::time_point begin_ = std::chrono::steady_clock::now();
  std::chrono::steady_clock::time_point next_ = begin_;
};

/// Returns how many had no answer.
size_t show(const PictureBatch& batch, const std::vector<Answer>& answers, const InferOptions& options,
            const Progress& progress) {
  size_t failures = 0;
  for (size_t i = 0; i < answers.size(); ++i) {
    if (options.json_lines)
      fmt::print("{}", json_line_of(batch.files[i].string(), answers[i]));
    else if (answers[i].ok())
      fmt::print("{}", line_of(name_of(batch.files[i], options), answers[i].prediction, options.score_digits));
    if (answers[i].ok()) continue;
    progress.clear();
    print_error(fmt::format("{}: {}", printable(batch.files[i].string()), answers[i].error));
    ++failures;
  }
  expect_printed();
  return failures;
}

size_t answer_all(const Predictor& predictor, const Pictures& pictures, const InferOptions& options) {
  PictureReader reader(predictor, pictures.files, options.batch_size);
  PictureBatch batch;
  Progress progress(pictures.files.size());
  size_t failures = 0;
  while (reader.next(batch)) {
    failures += show(batch, predictor.predict(batch.prepared), options, progress);
    progress.advance(batch.files.size());
  }
  return failures;
}

// --- how fast it is

struct Measured {
  Latency preprocess, inference, postprocess, whole;
  size_t pictures = 0;
  double seconds = 0;
};

/// The files again and again, so that every batch is whole.
std::vector<std::filesystem::path> batch_of(const Pictures& pictures, int batch_size, size_t round) {
  std::vector<std::filesystem::path> files;
  const size_t count = static_cast<size_t>(batch_size);
  for (size_t i = 0; i < count; ++i) files.push_back(pictures.files[(round * count + i) % pictures.files.size()]);
  return files;
}

void add(Measured& measured, const Timing& timing, size_t pictures) {
  measured.preprocess.add(timing.preprocess);
  measured.inference.add(timing.inference);
  measured.postprocess.add(timing.postprocess);
  measured.whole.add(timing.preprocess + timing.inference + timing.postprocess);
  measured.pictures += pictures;
}

/// One batch after the other, nothing beside: what a caller waits for.
Measured measure(const Predictor& predictor, const Pictures& pictures, int batch_size) {
  constexpr size_t kWarmUpRounds = 10, kMinRounds = 20, kMaxRounds = 1'000'000;
  constexpr auto kMinTime = std::chrono::seconds(2);
  Measured measured;
  auto begin = std::chrono::steady_clock::now();
  for (size_t round = 0; round < kWarmUpRounds + kMaxRounds; ++round) {
    if (round == kWarmUpRounds) begin = std::chrono::steady_clock::now();
    Timing timing;
    const PictureBatch batch = read_pictures(predictor, batch_of(pictures, batch_size, round));
    const std::vector<Answer> answers = predictor.predict(batch.prepared, &timing);
    if (round < kWarmUpRounds) continue;
    add(measured, timing, static_cast<size_t>(std::count_if(answers.begin(), answers.end(), std::mem_fn(&Answer::ok))));
    const auto taken = std::chrono::steady_clock::now() - begin;
    measured.seconds = std::chrono::duration<double>(taken).count();
    if (measured.whole.count() >= kMinRounds && taken > kMinTime) break;
  }
  return measured;
}

void report(const char* what, const Latency& latency) {
  fmt::print("{}(ms) of a batch: p50: {:.3f}, p90: {:.3f}, p95: {:.3f}, p99: {:.3f}\n", what, latency.percentile(50),
             latency.percentile(90), latency.percentile(95), latency.percentile(99));
}

void benchmark(const Predictor& predictor, const Pictures& pictures, const InferOptions& options) {
  const Measured found = measure(predictor, pictures, options.batch_size);
  fmt::print("benchmark of {}: {}, batch_size: {}, {} batches after warm-up\n", printable(predictor.model_name()),
             predictor.engine_name(), options.batch_size, found.whole.count());
  fmt::print("preprocess_time(ms): {:.4f}, inference_time(ms): {:.4f}, postprocess_time(ms): {:.4f}\n",
             found.preprocess.mean(), found.inference.mean(), found.postprocess.mean());
  report("latency", found.whole);
  report("inference_latency", found.inference);
  fmt::print("throughput(images/s): {:.1f}\n", static_cast<double>(found.pictures) / found.seconds);
  expect_printed();
}

// --- the program

/// Large buffers stay with the process: glibc would give them back to the kernel after every batch.
void prepare_process() {
  ::mallopt(M_MMAP_MAX, 0);
  ::mallopt(M_TRIM_THRESHOLD, INT_MAX);
}

void tell_skipped(const Pictures& pictures, const std::string& sources) {
  constexpr size_t kShown = 5;
  if (pictures.skipped.empty()) return;
  const size_t shown = std::min(kShown, pictures.skipped.size());
  const std::vector<std::string> names(pictures.skipped.begin(),
                                       pictures.skipped.begin() + static_cast<std::ptrdiff_t>(shown));
  log_warning("[infer] {}: skipped, not files that end in .jpg, .jpeg or .png: {} ({}{})", printable(sources),
              pictures.skipped.size(), printable(join(names, ", ")), shown < pictures.skipped.size() ? ", …" : "");
}

int answer(const InferOptions& options) {
  const Pictures pictures = find_pictures({.images = options.images,
                                           .lists = options.lists,
                                           .image_root = options.image_root,
                                           .recursive = options.recursive});
  tell_skipped(pictures, join(options.images, ", "));
  const Predictor predictor(options.model_dir, options.predictor);
  log_info("[infer] {}: {}", printable(predictor.model_name()), predictor.engine_name());
  const size_t failures = answer_all(predictor, pictures, options);
  if (failures > 0)
    fmt::print(stderr, "trireme: {} of {} pictures could not be answered\n", failures, pictures.files.size());
  if (options.benchmark && failures < pictures.files.size()) benchmark(predictor, pictures, options);
  return failures > 0 ? kFailed : 0;
}

int run(const std::vector<std::string>& words) {
  const InferOptions options = parse_infer_options(words);
  if (options.help) {
    fmt::print("{}", infer_help(*options.help));
    return 0;
  }
  prepare_process();
  try {
    return answer(options);
  } catch (const CannotPrint&) {
    throw;
  } catch (const Error& error) {  // the options were right: it is the model or the pictures
    print_error(error.what());
    return kFailed;
  }
}

}  // namespace
}  // namespace trireme::apps

int main(int argc, char** argv) {
  return trireme::run_main([&] { return trireme::apps::run({argv + 1, argv + argc}); });
}
