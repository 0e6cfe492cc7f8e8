#include "trireme/deploy/serve/service.h"

#include <fmt/core.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <condition_variable>
#include <cstring>
#include <future>
#include <limits>
#include <memory>
#include <mutex>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>
#include <utility>

#include "trireme/core/base64.h"
#include "trireme/core/error.h"
#include "trireme/core/http/server.h"
#include "trireme/core/http/test_client.h"
#include "trireme/core/test_support.h"

namespace trireme::serve {
namespace {

using Json = nlohmann::json;
using std::chrono::seconds;
using testing::HasSubstr;

// PNG files of 4 x 4 pixels.
constexpr const char* kRed =
    "iVBORw0KGgoAAAANSUhEUgAAAAQAAAAECAIAAAAmkwkpAAAAEElEQVR4nGP4z8AARwzEcQCukw/x0F8jngAAAABJRU5ErkJggg==";
constexpr const char* kGreen =
    "iVBORw0KGgoAAAANSUhEUgAAAAQAAAAECAIAAAAmkwkpAAAAD0lEQVR4nGNg+M+AQMRxAJ6jD/Flt2QIAAAAAElFTkSuQmCC";
constexpr const char* kBlue =
    "iVBORw0KGgoAAAANSUhEUgAAAAQAAAAECAIAAAAmkwkpAAAAEElEQVR4nGNgYPiPhIjiAACOsw/xs6MvMwAAAABJRU5ErkJggg==";

std::string picture(const char* base64) {
  return base64_decode(base64).bytes;
}

constexpr const char* kDescription = R"(
Global: {model_name: Colours}
Input: {name: x, shape: [-1, 3, 4, 4]}
Output: {name: out, activation: softmax, class_num: 3}
PreProcess:
  transform_ops:
    - ResizeImage: {size: 4}
    - NormalizeImage: {scale: 1.0/255.0, mean: [0.0, 0.0, 0.0], std: [1.0, 1.0, 1.0], order: ''}
    - ToCHWImage:
PostProcess: {Topk: {topk: 2, label_list: [red, green, blue]}}
)";

constexpr size_t kTensor = 3 * 16 * sizeof(float);
constexpr size_t kOne = 11 * 16 + 2 * kTensor;  // pixels of a JPEG, what resizing may take, and the tensor

/// The same with an input of 2 x 2.
std::string small_network() {
  std::string text = kDescription;
  text.replace(text.find("4, 4]"), 5, "2, 2]");
  return text.replace(text.find("size: 4"), 7, "size: 2");
}

/// Scores are the means of the three channels. Can be held at a gate, and broken.
class ColourEngine : public infer::Engine {
 public:
  struct Gate {
    std::mutex mutex;
    std::condition_variable changed;
    bool open = true;
    bool broken = false;
    bool wild = false;  // what is blue has the score NaN
    int entered = 0;
  };
  explicit ColourEngine(std::shared_ptr<Gate> gate) : gate_(std::move(gate)) {}

  std::string name() const override { return "colours"; }
  void run(std::span<const float> images, int64_t batch, std::span<float> scores) override {
    wait();
    const size_t plane = images.size() / scores.size();
    for (size_t i = 0; i < static_cast<size_t>(batch) * 3; ++i) {
      float sum = 0;
      for (const float value : images.subspan(i * plane, plane)) sum += value;
      scores[i] = sum / static_cast<float>(plane);
      if (gate_->wild && i % 3 == 2 && sum > 0) scores[i] = std::numeric_limits<float>::quiet_NaN();
    }
  }

 private:
  void wait() {
    std::unique_lock lock(gate_->mutex);
    ++gate_->entered;
    gate_->changed.notify_all();
    gate_->changed.wait_for(lock, seconds(20), [this] { return gate_->open; });
    if (gate_->broken) throw UsageError("a secret of the engine");
  }
  std::shared_ptr<Gate> gate_;
};

class ServiceTest : public testing::Test {
 protected:
  ~ServiceTest() override { set_gate(true); }

  void start(const ServiceOptions& options = {}, const std::string& description = kDescription) {
    description_ = description;
    service_ = std::make_unique<Service>([this] { return sources(); }, options);
  }
  /// A model for each of names_, by its colours.
  std::vector<ModelSource> sources() {
    std::vector<ModelSource> found;
    for (const std::string& name : names_)
      found.push_back({name, [this] {
                         return infer::Predictor(bundle::parse(description_, "test"),
                                                 std::make_unique<ColourEngine>(gate_));
                       }});
    return found;
  }
  void set_gate(bool open) {
    {
      std::lock_guard lock(gate_->mutex);
      gate_->open = open;
    }
    gate_->changed.notify_all();
  }
  void wait_entered(int count) {
    std::unique_lock lock(gate_->mutex);
    ASSERT_TRUE(gate_->changed.wait_for(lock, seconds(20), [&] { return gate_->entered >= count; }));
  }
  http::Response ask(http::Request request) {
    request.arrived = Clock::now();
    return service_->handle(request);
  }
  static http::Request prediction(std::string body, const std::string& type, const std::string& query = "") {
    return {.method = "POST",
            .path = "/v1/predict",
            .query = query,
            .headers = {{"content-type", type}},
            .body = std::move(body)};
  }
  http::Response post(std::string body, const std::string& type, const std::string& query = "") {
    return ask(prediction(std::move(body), type, query));
  }
  http::Response get(const std::string& path, const std::string& method = "GET") {
    return ask({.method = method, .path = path, .query = "", .headers = {}, .body = ""});
  }
  std::string code_of(const http::Response& response) {
    return fmt::format("{} {}", response.status, Json::parse(response.body)["error"]["code"].get<std::string>());
  }
  std::string message_of(const http::Response& response) { return Json::parse(response.body)["error"]["message"]; }

  std::shared_ptr<ColourEngine::Gate> gate_ = std::make_shared<ColourEngine::Gate>();
  std::vector<std::string> names_ = {""};
  std::string description_;
  std::unique_ptr<Service> service_;
};

std::string json_of(const std::vector<std::string>& images) {
  return Json{{"images", images}}.dump();
}

TEST_F(ServiceTest, AnswersOnePicture) {
  start();
  const http::Response response = post(picture(kGreen), "image/png; charset=binary");
  EXPECT_EQ(response.status, 200);
  EXPECT_EQ(Json::parse(response.body), Json::parse(R"({"model": "Colours", "predictions":
                [{"class_ids": [1, 0], "scores": [1.0, 0.0], "label_names": ["green", "red"]}]})"));
  EXPECT_EQ(post(picture(kGreen), "application/octet-stream").body, response.body);
  EXPECT_EQ(post(picture(kGreen), "IMAGE/JPEG").body, response.body) << "the bytes decide, not the label";
  EXPECT_EQ(Json::parse(post(picture(kGreen), "image/png", "topk=1").body)["predictions"][0]["class_ids"], Json({1}));
}

TEST_F(ServiceTest, AnswersSeveralInTheirOrderTheBadOnesToo) {
  start({.max_batch = 2, .max_queue = 2});
  const http::Response response = post(json_of({kBlue, "bm8gcGljdHVyZQ==", kRed, kGreen}), "application/json");
  EXPECT_EQ(response.status, 200);
  const Json predictions = Json::parse(response.body)["predictions"];
  ASSERT_EQ(predictions.size(), 4U);
  EXPECT_EQ(predictions[0]["class_ids"][0], 2);
  EXPECT_TRUE(predictions[1].contains("error"));
  EXPECT_EQ(predictions[2]["class_ids"][0], 0);
  EXPECT_EQ(predictions[3]["label_names"][0], "green");
}

TEST_F(ServiceTest, SaysWhatIsWrongWithARequest) {
  start({.images_per_request = 2});
  EXPECT_EQ(code_of(post("", "image/png")), "400 empty_body");
  EXPECT_EQ(code_of(post("no picture", "image/png")), "400 bad_image");
  EXPECT_EQ(code_of(post("{", "application/json")), "400 bad_json");
  EXPECT_EQ(code_of(post(json_of({"x"}), "application/json")), "400 bad_base64");
  EXPECT_EQ(code_of(post(json_of({"", "", ""}), "application/json")), "400 too_many_images");
  EXPECT_EQ(code_of(post(picture(kRed), "image/png", "topk=x")), "400 bad_topk");
  EXPECT_EQ(code_of(post(picture(kRed), "text/plain")), "415 unsupported_type");
  EXPECT_THAT(message_of(post(picture(kRed), "")), HasSubstr("missing"));
  EXPECT_THAT(message_of(post(json_of({"bm8="}), "application/json")), HasSubstr("images[0]"));
  http::Request packed = prediction("x", "image/png");
  packed.headers.emplace_back("content-encoding", "gzip");
  EXPECT_EQ(code_of(ask(packed)), "415 unsupported_type");
}

TEST_F(ServiceTest, APictureMayBeTooLarge) {
  start({.max_pixels = 15});
  EXPECT_EQ(code_of(post(picture(kRed), "image/png")), "413 image_too_large");
  EXPECT_THAT(message_of(post(picture(kRed), "image/png")), HasSubstr("4x4 are 16 pixels; the limit is 15"));
  EXPECT_EQ(code_of(post(json_of({kRed, "bm8="}), "application/json")), "413 image_too_large") << "the first counts";
  EXPECT_EQ(code_of(post(json_of({"bm8=", kRed}), "application/json")), "400 bad_image");
  start({.decode_bytes = 48 + 48 + 48 - 1}, small_network());  // pixels, what resizing may take, the input's floats
  EXPECT_EQ(code_of(post(picture(kRed), "image/png")), "413 image_too_large");
  EXPECT_THAT(message_of(post(picture(kRed), "image/png")),
              HasSubstr("144 bytes to decode and resize; the limit is 143"));
}

TEST_F(ServiceTest, MemoryForNoPictureAtAllIsFoundAtTheStart) {
  start({.decode_bytes = kOne});
  const std::string jpeg(  // 4 x 4, and then nothing
      "\xff\xd8\xff\xc0\0\x0b\x08\0\4\0\4\1\1\x11\0\xff\xda\0\x08\1\1\0\0\x3f\0", 25);
  EXPECT_EQ(code_of(post(jpeg, "image/jpeg")), "400 bad_image") << "is not too large";
  EXPECT_THAT([&] { start({.decode_bytes = kOne - 1}); },
              testing::ThrowsMessage<TooLittleMemory>(AllOf(HasSubstr("--decode-memory 559"), HasSubstr("560 bytes"))));
}

TEST_F(ServiceTest, PicturesAreDecodedInTurnWhenMemoryIsScarce) {
  start({.decode_bytes = kOne});
  std::string damaged = picture(kRed);
  damaged[damaged.size() - 20] ^= 1;
  std::vector<std::future<int>> answers;
  for (int i = 0; i < 12; ++i)
    answers.push_back(std::async(std::launch::async, [&, i] {
      return i % 3 == 0 ? post(damaged, "image/png").status : post(picture(kGreen), "image/png").status;
    }));
  for (size_t i = 0; i < answers.size(); ++i) EXPECT_EQ(answers[i].get(), i % 3 == 0 ? 400 : 200) << i;
  EXPECT_EQ(post(json_of({kRed, kGreen, kBlue}), "application/json").status, 200);
}

TEST_F(ServiceTest, WhatWaitsForTheEngineIsPartOfTheMemory) {
  start({.max_batch = 1, .max_queue = 1, .decode_bytes = kOne + kTensor});
  set_gate(false);
  auto running = std::async(std::launch::async, [&] { return post(picture(kRed), "image/png").status; });
  wait_entered(2);
  auto waiting = std::async(std::launch::async, [&] { return post(picture(kRed), "image/png").status; });
  const Deadline patience = Deadline::in(seconds(20));
  while (get("/metrics").body.find("trireme_queue_depth 1") == std::string::npos && !patience.passed())
    std::this_thread::yield();
  // Their two tensors leave too little to decode a third picture. It waits for memory: else the queue would be full.
  http::Request third = prediction(picture(kRed), "image/png");
  third.arrived = Clock::now() - ServiceOptions().request_timeout + Millis(50);
  EXPECT_EQ(code_of(service_->handle(third)), "504 timeout");
  set_gate(true);
  EXPECT_EQ(running.get(), 200);
  EXPECT_EQ(waiting.get(), 200);
  EXPECT_EQ(post(picture(kRed), "image/png").status, 200) << "the memory came back";
}

TEST_F(ServiceTest, ARequestOfMoreThanTheMemoryHoldsIsAnsweredInParts) {
  start({.max_batch = 3, .decode_bytes = kOne + kTensor});  // for two
  const http::Response response =
      post(json_of({kRed, "bm8=", kGreen, kBlue, "bm8=", "bm8=", kRed, kGreen}), "application/json");
  const Json predictions = Json::parse(response.body)["predictions"];
  ASSERT_EQ(predictions.size(), 8U);
  EXPECT_EQ(predictions[3]["label_names"][0], "blue");
  EXPECT_TRUE(predictions[5].contains("error"));
  EXPECT_EQ(predictions[7]["label_names"][0], "green");
}

TEST_F(ServiceTest, ScoresThatAreNotFiniteAreTheServersFaultAndHarmNoOther) {
  start();
  gate_->wild = true;
  const http::Response alone = post(picture(kBlue), "image/png");
  EXPECT_EQ(code_of(alone), "500 bad_scores");
  EXPECT_THAT(message_of(alone), HasSubstr("class 2"));
  EXPECT_EQ(code_of(post(json_of({"bm8=", kBlue}), "application/json")), "500 bad_scores");
  const Json predictions = Json::parse(post(json_of({kRed, kBlue, kGreen}), "application/json").body)["predictions"];
  EXPECT_EQ(predictions[0]["label_names"][0], "red");
  EXPECT_TRUE(predictions[1].contains("error"));
  EXPECT_EQ(predictions[2]["label_names"][0], "green");
  EXPECT_THAT(get("/metrics").body,
              AllOf(HasSubstr("trireme_failed_pictures_total 3\n"), HasSubstr("trireme_refused_pictures_total 1\n")));
}

TEST_F(ServiceTest, TopkIsGivenOnceAndMoreThanThereAreMeansAll) {
  start();
  const auto count = [&](const std::string& query) {
    return Json::parse(post(picture(kRed), "image/png", query).body)["predictions"][0]["class_ids"].size();
  };
  EXPECT_EQ(count("topk=999999"), 3U);
  EXPECT_EQ(count("a=b&topk=1"), 1U);
  for (const char* query : {"topk=", "topk", "topk=abc", "topk=0", "topk=-1", "topk=99999999999"})
    EXPECT_THAT(message_of(post(picture(kRed), "image/png", query)), HasSubstr("from 1 to 2147483647")) << query;
  EXPECT_THAT(message_of(post(picture(kRed), "image/png", "topk=1&topk=2")), HasSubstr("given 2 times"));
  const std::string body = Json{{"images", {kRed}}, {"topk", 1}}.dump();
  EXPECT_EQ(code_of(post(body, "application/json", "topk=1")), "400 bad_topk");
}

TEST_F(ServiceTest, ADamagedPictureIsTheClientsFault) {
  start();
  std::string bytes = picture(kRed);
  const size_t whole = bytes.size() - 4;  // the checksum of the end, which holds nothing, may be missing
  for (size_t length = 0; length < whole; ++length)
    EXPECT_EQ(post(bytes.substr(0, length), "image/png").status, 400) << length;
  bytes[bytes.size() - 20] ^= 1;
  EXPECT_EQ(code_of(post(bytes, "image/png")), "400 bad_image");
}

TEST_F(ServiceTest, PathsAndMethods) {
  start();
  EXPECT_THAT(message_of(get("/nowhere")),
              AllOf(HasSubstr("/nowhere"), HasSubstr("/v1/predict"), HasSubstr("/metrics")));
  EXPECT_EQ(get("/nowhere").status, 404);
  const http::Response response = get("/v1/predict");
  EXPECT_EQ(response.status, 405);
  EXPECT_THAT(response.headers, testing::ElementsAre(testing::Pair("Allow", "POST")));
  EXPECT_EQ(get("/healthz", "POST").headers.at(0).second, "GET, HEAD");
  EXPECT_EQ(get("/metrics", "DELETE").status, 405);
  EXPECT_EQ(get("/healthz", "HEAD").status, 200);
}

TEST_F(ServiceTest, HealthEndsWithTheDrain) {
  start();
  EXPECT_EQ(get("/healthz").status, 200);
  http::Request late{.method = "GET", .path = "/healthz", .query = "", .headers = {}, .body = "", .late = true};
  EXPECT_EQ(ask(late).status, 503);
  late.method = "POST";
  late.path = "/predict";
  const http::Response response = ask(late);
  EXPECT_EQ(code_of(response), "503 draining");
  EXPECT_EQ(response.headers.at(0).first, "Retry-After");
}

TEST_F(ServiceTest, AModelMayHaveAnyName) {
  std::string description = kDescription;
  start({}, description.replace(description.find("Colours"), 7, "\"\xff\""));
  EXPECT_THAT(get("/healthz").body, HasSubstr("\"model\":\"\xef\xbf\xbd\"")) << "U+FFFD";
  EXPECT_EQ(post(picture(kRed), "image/png").status, 200);
}

TEST_F(ServiceTest, PicturesOfSeveralRequestsShareABatchAndKeepTheirAnswers) {
  start({.max_batch = 3, .batch_wait = seconds(20)});
  const char* colours[] = {kRed, kGreen, kBlue};
  std::vector<std::string> alone;
  for (const char* colour : colours) alone.push_back(post(picture(colour), "image/png").body);
  set_gate(false);
  std::vector<std::future<std::string>> together;
  together.push_back(std::async(std::launch::async, [&] { return post(picture(kRed), "image/png").body; }));
  wait_entered(5);  // the first run at the start, three alone, and this one
  for (const char* colour : colours)
    together.push_back(std::async(std::launch::async, [&, colour] { return post(picture(colour), "image/png").body; }));
  const Deadline deadline = Deadline::in(seconds(20));
  while (get("/metrics").body.find("trireme_queue_depth 3") == std::string::npos && !deadline.passed())
    std::this_thread::yield();
  set_gate(true);
  for (size_t i = 0; i < 3; ++i) EXPECT_EQ(together[i + 1].get(), alone[i]);
  EXPECT_THAT(get("/metrics").body,
              AllOf(HasSubstr("trireme_batch_size_bucket{le=\"2\"} 4\n"),
                    HasSubstr("trireme_batch_size_bucket{le=\"4\"} 5\n"), HasSubstr("trireme_batch_size_sum 7\n")));
}

TEST_F(ServiceTest, AFullQueueAndALongWaitAreTold) {
  start({.max_batch = 1, .max_queue = 1, .images_per_request = 1, .request_timeout = Millis(100)});
  set_gate(false);
  auto running = std::async(std::launch::async, [&] { return post(picture(kRed), "image/png"); });
  wait_entered(2);
  auto waiting = std::async(std::launch::async, [&] { return post(picture(kRed), "image/png"); });
  http::Response response = post(picture(kRed), "image/png");
  const Deadline deadline = Deadline::in(seconds(20));
  EXPECT_EQ(code_of(running.get()), "504 timeout");
  EXPECT_THAT((std::vector<std::string>{code_of(waiting.get()), code_of(response)}),
              testing::UnorderedElementsAre("504 timeout", "503 overloaded"));
  EXPECT_FALSE(deadline.passed());
}

TEST_F(ServiceTest, AnEngineThatFailsIsNotTheClientsFault) {
  start();
  {
    std::lock_guard lock(gate_->mutex);
    gate_->broken = true;
  }
  EXPECT_THROW(post(picture(kRed), "image/png"), UsageError) << "of which http::Server makes a 500";
}

TEST_F(ServiceTest, AModelThatCannotWorkIsFoundAtTheStart) {
  gate_->broken = true;
  EXPECT_THROW(start(), UsageError);
}

TEST_F(ServiceTest, AModelThatReadsNoPicturesIsFoundAtTheStart) {
  std::string tensors_only = kDescription;
  const size_t begin = tensors_only.find("PreProcess");
  tensors_only.erase(begin, tensors_only.find("PostProcess") - begin);
  try {
    start({}, tensors_only);
    FAIL();
  } catch (const UsageError& error) {
    EXPECT_THAT(error.what(), AllOf(HasSubstr("Colours"), HasSubstr("transform_ops")));
  }
}

TEST_F(ServiceTest, HealthAndMetricsAreAnsweredWhileEveryWorkerWaits) {
  start();
  http::Server server(listen_tcp("127.0.0.1", 0), {.workers = 1, .max_waiting = 1, .is_quick = Service::is_quick},
                      [this](http::Request& request) { return service_->handle(request); });
  set_gate(false);
  const std::string body = picture(kRed);
  const std::string request =
      fmt::format("POST /predict HTTP/1.1\r\nHost: x\r\nContent-Type: image/png\r\nContent-Length: {}\r\n\r\n{}",
                  body.size(), body);
  http::TestClient first(server.port()), second(server.port()), probe(server.port());
  first.send(request);
  wait_entered(2);
  EXPECT_THAT(probe.ask("GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n"), HasSubstr("200 OK"));
  second.send(request);
  const Deadline patience = Deadline::in(seconds(10));
  while (server.counts().in_flight < 2 && !patience.passed()) std::this_thread::yield();
  EXPECT_THAT(probe.ask("GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n"), HasSubstr("trireme_in_flight 3"));
  EXPECT_THAT(probe.ask(request), AllOf(HasSubstr("503"), HasSubstr("Retry-After: 1")));
  set_gate(true);
  EXPECT_THAT(first.answer(), HasSubstr("200 OK"));
  EXPECT_THAT(second.answer(), HasSubstr("200 OK"));
}

TEST_F(ServiceTest, ATextThatIsNotBase64HarmsNoOtherPicture) {
  start();
  const http::Response response = post(json_of({kRed, "not Base64!!", kGreen}), "application/json");
  EXPECT_EQ(response.status, 200);
  const Json predictions = Json::parse(response.body)["predictions"];
  EXPECT_EQ(predictions[0]["label_names"][0], "red");
  EXPECT_THAT(predictions[1]["error"].get<std::string>(), HasSubstr("Base64"));
  EXPECT_EQ(predictions[2]["label_names"][0], "green");
}

TEST_F(ServiceTest, NothingIsDecodedForAClientThatHasLeft) {
  start();
  const auto left = std::make_shared<std::atomic<bool>>(true);
  http::Request request = prediction(json_of({kRed, kGreen}), "application/json");
  request.abandoned = left;
  EXPECT_EQ(code_of(ask(request)), "499 client_left");
  EXPECT_EQ(gate_->entered, 1) << "the run at the start";
}

TEST_F(ServiceTest, ModelsAreReloadedAndOneThatCannotBeStaysAsItWas) {
  start();
  const std::string before = post(picture(kRed), "image/png").body;
  description_.replace(description_.find("label_list: [red"), 16, "label_list: [rot");
  EXPECT_TRUE(service_->reload());
  const std::string after = post(picture(kRed), "image/png").body;
  EXPECT_THAT(after, HasSubstr("rot"));
  EXPECT_NE(after, before);
  const CaughtLog log;
  description_ = "Input: 5";
  EXPECT_FALSE(service_->reload());
  EXPECT_EQ(log.count("reload: Colours stays as it was: test"), 1U);
  EXPECT_EQ(post(picture(kRed), "image/png").body, after);
  EXPECT_THAT(get("/metrics").body, AllOf(HasSubstr("trireme_reloads_total{result=\"ok\"} 1\n"),
                                          HasSubstr("trireme_reloads_total{result=\"failed\"} 1\n")));
}

TEST_F(ServiceTest, ARequestEndsWithTheModelThatItBeganWith) {
  start();
  set_gate(false);
  auto begun = std::async(std::launch::async, [&] { return post(picture(kRed), "image/png").body; });
  wait_entered(2);
  description_.replace(description_.find("label_list: [red"), 16, "label_list: [rot");
  auto reloaded = std::async(std::launch::async, [&] { return service_->reload(); });
  wait_entered(3);  // the first run of the new one
  set_gate(true);
  EXPECT_TRUE(reloaded.get());
  EXPECT_THAT(begun.get(), HasSubstr("\"red\""));
}

TEST_F(ServiceTest, AnOldModelThatHangsHoldsUpNoReload) {
  start({.request_timeout = Millis(500)});
  set_gate(false);
  EXPECT_EQ(code_of(post(picture(kRed), "image/png")), "504 timeout");
  const auto hanging = std::exchange(gate_, std::make_shared<ColourEngine::Gate>());  // the new model has its own
  const Deadline patience = Deadline::in(seconds(10));
  EXPECT_TRUE(service_->reload());
  EXPECT_TRUE(service_->reload());
  EXPECT_FALSE(patience.passed());
  EXPECT_EQ(post(picture(kRed), "image/png").status, 200);
  gate_ = hanging;  // which the test's end opens
}

TEST_F(ServiceTest, WhenAllModelsAreGoneTheyStayAsTheyWere) {
  names_ = {"one", "two"};
  start();
  const CaughtLog log;
  names_ = {""};  // a folder without any is one source, which says what is missing
  description_ = "Input: 5";
  EXPECT_FALSE(service_->reload());
  EXPECT_EQ(log.count("reload: all models stay as they were: test"), 1U);
  EXPECT_THAT(get("/healthz").body, HasSubstr(R"("models":["one","two"])"));
}

TEST_F(ServiceTest, SeveralModelsAreAskedByName) {
  names_ = {"one", "two words"};
  start();
  EXPECT_EQ(code_of(post(picture(kRed), "image/png")), "400 which_model");
  http::Request request = prediction(picture(kRed), "image/png");
  request.path = "/v1/models/two%20words/predict";
  EXPECT_THAT(ask(request).body, HasSubstr("\"model\":\"two words\""));
  request.path = "/v1/models/three/predict";
  EXPECT_EQ(code_of(ask(request)), "404 no_such_model");
  EXPECT_THAT(get("/healthz").body, HasSubstr(R"("models":["one","two words"])"));
  EXPECT_THAT(get("/metrics").body, HasSubstr("trireme_models 2\n"));
}

TEST_F(ServiceTest, ARetiringServerAnswersAndIsNotReady) {
  start();
  EXPECT_EQ(get("/v2/health/ready").status, 200);
  service_->retire();
  EXPECT_EQ(get("/healthz").status, 503);
  EXPECT_EQ(get("/v2/health/ready").status, 503);
  EXPECT_EQ(get("/v2/models/Colours/ready").status, 503);
  EXPECT_EQ(get("/v2/health/live").status, 200);
  EXPECT_EQ(post(picture(kRed), "image/png").status, 200);
}

// --- KServe v2

TEST_F(ServiceTest, V2SaysWhatThereIs) {
  start();
  EXPECT_EQ(Json::parse(get("/v2").body)["extensions"], Json({"binary_tensor_data", "classification"}));
  const Json model = Json::parse(get("/v2/models/Colours").body);
  EXPECT_EQ(get("/v2/models/Colours/versions/1").body, get("/v2/models/Colours").body);
  EXPECT_EQ(model["inputs"], Json::parse(R"([{"name": "x", "datatype": "FP32", "shape": [-1, 3, 4, 4]}])"));
  EXPECT_EQ(model["outputs"], Json::parse(R"([{"name": "out", "datatype": "FP32", "shape": [-1, 3]}])"));
  EXPECT_EQ(get("/v2/models/Colours/ready").status, 200);
  EXPECT_EQ(get("/v2/models/Other").status, 404);
  EXPECT_THAT(Json::parse(get("/v2/models/Other").body)["error"].get<std::string>(), HasSubstr("there are: Colours"));
  EXPECT_EQ(get("/v2/models/Colours/versions/2").status, 404);
}

http::Request infer_of(std::string body) {
  return {.method = "POST", .path = "/v2/models/Colours/infer", .query = "", .headers = {}, .body = std::move(body)};
}

TEST_F(ServiceTest, V2AnswersTensorsAndPictures) {
  start({.max_batch = 1});
  Json tensor = Json::array();
  for (int i = 0; i < 96; ++i) tensor.push_back(i >= 16 && i < 32 ? 1 : i >= 80 ? 0.5 : 0);  // green; half of blue
  const Json input{{"name", "x"}, {"datatype", "FP32"}, {"shape", {2, 3, 4, 4}}, {"data", tensor}};
  const http::Response response = ask(infer_of(Json{{"id", "a"}, {"inputs", {input}}}.dump()));
  EXPECT_EQ(Json::parse(response.body), Json::parse(R"({"id": "a", "model_name": "Colours", "model_version": "1",
      "outputs": [{"name": "out", "datatype": "FP32", "shape": [2, 3], "data": [0.0, 1.0, 0.0, 0.0, 0.0, 0.5]}]})"));
  const Json pictures{{"name", "x"}, {"datatype", "BYTES"}, {"shape", {2}}, {"data", {kGreen, kBlue}}};
  EXPECT_EQ(Json::parse(ask(infer_of(Json{{"inputs", {pictures}}}.dump())).body)["outputs"][0]["data"],
            Json({0, 1, 0, 0, 0, 1}));
  const Json best{{"name", "out"}, {"parameters", {{"classification", 2}}}};
  EXPECT_EQ(Json::parse(ask(infer_of(Json{{"inputs", {pictures}}, {"outputs", {best}}}.dump())).body)["outputs"][0],
            Json::parse(R"({"name": "out", "datatype": "BYTES", "shape": [2, 2], "data":
                ["1.000000:1:green", "0.000000:0:red", "1.000000:2:blue", "0.000000:0:red"]})"));
}

TEST_F(ServiceTest, V2AnswersInBytes) {
  start();
  const std::string bytes = picture(kGreen);
  const auto length = static_cast<uint32_t>(bytes.size());
  const std::string json = fmt::format(
      R"({{"parameters": {{"binary_data_output": true}}, "inputs": [{{"name": "x", "datatype": "BYTES", "shape": [1],
          "parameters": {{"binary_data_size": {}}}}}]}})",
      4 + length);
  http::Request request = infer_of(json + std::string(reinterpret_cast<const char*>(&length), 4) + bytes);
  request.headers = {{"inference-header-content-length", std::to_string(json.size())}};
  const http::Response response = ask(request);
  ASSERT_EQ(response.status, 200) << response.body;
  ASSERT_EQ(response.headers.at(0).first, "Inference-Header-Content-Length");
  const size_t head = std::stoul(response.headers[0].second);
  EXPECT_EQ(Json::parse(response.body.substr(0, head))["outputs"][0]["parameters"]["binary_data_size"], 12);
  EXPECT_EQ(response.body.substr(head), std::string("\0\0\0\0\0\0\x80\x3f\0\0\0\0", 12));
}

TEST_F(ServiceTest, V2RefusesInItsOwnForm) {
  start({.decode_bytes = kOne});
  const auto said = [&](const std::string& body) {
    const http::Response response = ask(infer_of(body));
    return fmt::format("{} {}", response.status, Json::parse(response.body)["error"].get<std::string>());
  };
  EXPECT_THAT(said("{"), HasSubstr("400 the body is not JSON"));
  const Json bad{{"name", "x"}, {"datatype", "BYTES"}, {"shape", {2}}, {"data", {kGreen, "bm8="}}};
  EXPECT_THAT(said(Json{{"inputs", {bad}}}.dump()), HasSubstr("400 data[1]: "));
  const Json large{{"name", "x"}, {"datatype", "FP32"}, {"shape", {3, 3, 4, 4}}, {"data", std::vector<int>(144)}};
  EXPECT_THAT(said(Json{{"inputs", {large}}}.dump()), HasSubstr("413 3 tensors take 576 bytes; the limit is 560"));
  http::Request late = infer_of("{}");
  late.late = true;
  EXPECT_EQ(ask(late).status, 503);
  EXPECT_EQ(Json::parse(ask(late).body), Json::parse(R"({"error": "the server is shutting down"})"));
  http::Request packed = infer_of("{}");
  packed.headers = {{"content-encoding", "gzip"}};
  EXPECT_EQ(ask(packed).status, 415);
}

TEST_F(ServiceTest, OpenApiDescribesEveryPath) {
  start();
  const Json page = Json::parse(get("/openapi.json").body);
  EXPECT_EQ(page["openapi"], "3.1.0");
  size_t operations = 0;
  for (const auto& [path, methods] : page["paths"].items()) {
    for (const auto& [method, operation] : methods.items()) {
      ++operations;
      EXPECT_TRUE(operation.contains("summary") && operation["responses"].contains("200")) << path;
      std::string concrete = path;
      for (const auto& [from, to] : {std::pair{"{name}", "Colours"}, std::pair{"{version}", "1"}})
        if (const size_t at = concrete.find(from); at != std::string::npos) concrete.replace(at, strlen(from), to);
      EXPECT_NE(get(concrete, method == "get" ? "GET" : "POST").status, 404) << concrete;
    }
  }
  EXPECT_EQ(operations, std::size(kRoutes));
  EXPECT_THAT(get("/docs").body, AllOf(HasSubstr("<table>"), HasSubstr("/v2/models/{name}/infer")));
}

}  // namespace
}  // namespace trireme::serve
