#include "trireme/deploy/infer/engine.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "trireme/core/error.h"
#include "trireme/core/file.h"
#include "trireme/core/test_support.h"
#include "trireme/deploy/infer/engine_plugin.h"
#include "trireme/deploy/infer/predictor.h"

namespace trireme::infer {
namespace {

using testing::AllOf;
using testing::HasSubstr;

bundle::Description description() {
  return bundle::parse("Global: {model_name: Net}\nInput: {shape: [-1, 3, 4, 4]}\nOutput: {class_num: 2}\n", "f");
}

TEST(Names, AreReadAndWritten) {
  for (const char* name : {"auto", "openvino", "torch"}) EXPECT_STREQ(to_string(parse_engine(name)), name);
  for (const char* name : {"fp32", "bf16", "fp16"}) EXPECT_STREQ(to_string(parse_precision(name)), name);
  EXPECT_THAT(refusal([] { parse_engine("tensorrt"); }), HasSubstr("there are auto, openvino, torch"));
  EXPECT_THAT(refusal([] { parse_precision("int8"); }), HasSubstr("there are fp32, bf16, fp16"));
}

TEST(Engine, NamesTheNetworkThatIsMissing) {
  const TempDir dir;
  EXPECT_THAT(refusal([&] { make_engine({.folder = dir.path(), .kind = EngineKind::openvino}, description()); }),
              AllOf(HasSubstr((dir.path() / "inference.onnx").string()), HasSubstr("trireme export")));
  EXPECT_THAT(refusal([&] { make_engine({.folder = dir.path(), .use_gpu = true}, description()); }),
              HasSubstr("inference.pt"));
}

TEST(Engine, RefusesWhatCannotBe) {
  const TempDir dir;
  EXPECT_THAT(refusal([&] {
                make_engine({.folder = dir.path(), .kind = EngineKind::openvino, .use_gpu = true}, description());
              }),
              HasSubstr("take the engine torch"));
  EXPECT_THAT(refusal([&] {
                make_engine({.folder = dir.path(), .kind = EngineKind::torch, .cpu_threads = -1}, description());
              }),
              HasSubstr("cpu_threads is -1"));
}

TEST(Engine, OfALongErrorTheLastLineIsTold) {
  EXPECT_EQ(last_line("Exception from src/core.cpp:97:\n  no such operator: Foo \n\n"), "no such operator: Foo");
  EXPECT_EQ(last_line(""), "");
}

TEST(Predictor, NamesTheFolderThatIsMissing) {
  EXPECT_THAT(refusal([] { const Predictor predictor("/nowhere/at/all"); }), HasSubstr("/nowhere/at/all"));
}

}  // namespace
}  // namespace trireme::infer
