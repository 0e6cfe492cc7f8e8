// Test cases in both formats, for tests.
#pragma once

#include <string>
#include <vector>

#include "trireme/core/text.h"

namespace trireme::tipc {

inline std::vector<std::string> short_lines() {
  return {"===========================train_params===========================",
          "model_name:tiny",
          "python:python3",
          "gpu_list:cpu:2",
          "use-gpu:True|True",
          "--epochs:lite_train_lite_infer=2|whole_train_whole_infer=90",
          "--output-dir:./output/",
          "--batch-size:lite_train_lite_infer=4|whole_train_whole_infer=128",
          "--pretrained:null",
          "train_model_name:latest",
          "--data-path:./lite_data",
          "##",
          "trainer:norm_train",
          "norm_train:./train -c tiny.yaml",
          "##",
          "===========================eval_params===========================",
          "eval:./eval -c tiny.yaml",
          "##",
          "===========================infer_params===========================",
          "--save-inference-dir:./output/infer/",
          "--pretrained:",
          "norm_export:./export -c tiny.yaml",
          "##",
          "train_model:weights.safetensors",
          "infer_export:./export -c tiny.yaml",
          "##",
          "inference:./infer",
          "--use-gpu:False",
          "--batch-size:1|4",
          "--model-dir:./output/infer/",
          "--img-path:./images/demo.png",
          "--benchmark:True"};
}

inline std::vector<std::string> long_lines() {
  return {"===========================train_params===========================",
          "model_name:tiny",
          "python:python3",
          "gpu_list:0|0,1",
          "-o Global.device:gpu",
          "-o Global.auto_cast:null|amp",
          "-o Global.epochs:lite_train_lite_infer=2|whole_train_whole_infer=120",
          "-o Global.output_dir:./output/",
          "-o DataLoader.Train.sampler.batch_size:8",
          "-o Global.pretrained_model:null",
          "train_model_name:latest",
          "train_infer_img_dir:./dataset/val",
          "null:null",
          "##",
          "trainer:norm_train",
          "norm_train:tools/train.py -c tiny.yaml",
          "pact_train:null",
          "fpgm_train:null",
          "distill_train:tools/train.py -c ssld.yaml",
          "to_static_train:-o Global.to_static=True",
          "null:null",
          "##",
          "===========================eval_params===========================",
          "eval:tools/eval.py -c tiny.yaml",
          "null:null",
          "##",
          "===========================infer_params==========================",
          "-o Global.save_inference_dir:./inference",
          "-o Global.pretrained_model:",
          "norm_export:tools/export.py -c tiny.yaml",
          "quant_export:null",
          "fpgm_export:null",
          "distill_export:tools/export.py -c ssld.yaml",
          "kl_quant:null",
          "export2:null",
          "pretrained_model_url:https://example.org/a:b.tar",
          "infer_model:../inference/",
          "infer_export:True",
          "infer_quant:False",
          "inference:python/predict.py -c infer.yaml",
          "-o Global.use_gpu:True|False",
          "-o Global.enable_mkldnn:null",
          "-o Global.cpu_num_threads:1|6",
          "-o Global.batch_size:1",
          "-o Global.use_tensorrt:null",
          "-o Global.precision:fp32|bf16",
          "-o Global.inference_model_dir:../inference",
          "-o Global.infer_imgs:../val",
          "-o Global.save_log_path:null",
          "-o Global.benchmark:True",
          "null:null",
          "===========================train_benchmark_params==========================",
          "batch_size:8|16",
          "fp_items:fp32|bf16",
          "epoch:1",
          "--profiler_options:batch_range=[10,20];state=GPU",
          "flags:A=1;B=x:y",
          "===========================infer_benchmark_params==========================",
          "random_infer_input:[{float32,[3,224,224]}]"};
}

/// With line `number` (from 1) replaced.
inline std::vector<std::string> with_line(std::vector<std::string> lines, size_t number, const std::string& text) {
  lines[number - 1] = text;
  return lines;
}

inline std::string text_of(const std::vector<std::string>& lines) {
  return join(lines, "\n") + "\n";
}

}  // namespace trireme::tipc
