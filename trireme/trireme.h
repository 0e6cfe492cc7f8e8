// The whole public API at a glance.
//
//   #include <trireme/trireme.h>
//
//   int main() {
//     auto world = trireme::init_parallel_env();            // under `trireme launch`; alone: rank 0 of 1
//     trireme::DataParallel model(Net(), world);            // gradients are averaged over the ranks
//     …
//   }
#pragma once

#include "trireme/core/cxx20.h"              // an error without C++20
#include "trireme/core/error.h"              // UsageError, SystemError, PeerError
#include "trireme/core/log.h"                // set_log_sink, set_log_level
#include "trireme/core/parallel_env.h"       // ParallelEnv, get_rank, get_world_size
#include "trireme/core/version.h"            // kVersion
#include "trireme/deploy/infer/predictor.h"  // infer::Predictor: an exported model
#include "trireme/launch/spawn.h"            // spawn
#include "trireme/store/job.h"               // connect_job: the launcher without tensors
#include "trireme/store/store.h"             // Store: the job's keys and values
#include "trireme/watch/report.h"            // watch::report: a number for the dashboard

#ifndef TRIREME_WITHOUT_TORCH
#include <torch/torch.h>

#include "trireme/comm/collectives.h"                // all_reduce, broadcast, send, …
#include "trireme/comm/group.h"                      // Group: split, new_group
#include "trireme/comm/work.h"                       // Work: an operation under way
#include "trireme/data/batch_ops.h"                  // data::Mixup, data::CutMix
#include "trireme/data/collate.h"                    // data::Collate, data::pad_sequences
#include "trireme/data/image/packed.h"               // data::pack_images
#include "trireme/data/image_dataset.h"              // data::ImageDataset
#include "trireme/data/loader.h"                     // data::Loader
#include "trireme/data/mnist.h"                      // data::Mnist, data::FashionMnist
#include "trireme/data/order/sampler.h"              // data::DistributedBatchSampler
#include "trireme/data/synthetic.h"                  // data::Synthetic
#include "trireme/data/tensor_dataset.h"             // data::TensorDataset
#include "trireme/data/tokens.h"                     // data::Tokens: text for a language model
#include "trireme/data/wrappers.h"                   // data::Map, Subset, Concat, Cache
#include "trireme/deploy/export/export.h"            // deploy::export_model
#include "trireme/io/checkpoint/checkpoint.h"        // Checkpoint: save, restore, preempted
#include "trireme/io/checkpoint/whole_state_dict.h"  // whole_state_dict: weights that are split, on rank 0
#include "trireme/io/module_state.h"                 // io::state_dict, io::load_into
#include "trireme/io/safetensors.h"                  // io::load_safetensors, io::save_safetensors
#include "trireme/models/gpt/gpt.h"                  // models::gpt: a language model
#include "trireme/models/models.h"                   // models::create, models::lenet, models::resnet50, …
#include "trireme/nn/batch_norm_act.h"               // nn::BatchNormAct, nn::convert_batch_norm_act
#include "trireme/nn/channels_last.h"                // nn::to_channels_last
#include "trireme/optim/amp.h"                       // optim::Autocast, GradScaler
#include "trireme/optim/clip.h"                      // optim::clip_grad_norm
#include "trireme/optim/ema.h"                       // optim::Ema
#include "trireme/optim/optimizers.h"                // optim::SGD, Momentum, Adam, AdamW, RMSProp
#include "trireme/optim/schedules.h"                 // optim::make_schedule
#include "trireme/parallel/data_parallel.h"          // DataParallel, NoSync
#include "trireme/parallel/init.h"                   // init_parallel_env, World
#include "trireme/parallel/mesh.h"                   // Mesh: named axes of ranks
#include "trireme/parallel/pipeline/pipeline.h"      // Pipeline, PipelineLayer, Schedule
#include "trireme/parallel/random.h"                 // seed_along, RankRandom
#include "trireme/parallel/recompute.h"              // checkpoint: memory for time
#include "trireme/parallel/sharded_data_parallel.h"  // ShardedDataParallel, Shard
#include "trireme/parallel/sync_batch_norm.h"        // convert_sync_batch_norm
#include "trireme/parallel/tensor/layers.h"          // nn::ColumnParallelLinear, …
#include "trireme/parallel/tensor/sequence.h"        // nn::split_sequence, nn::ParallelLayerNorm
#include "trireme/parallel/tensor/transformer.h"     // nn::ParallelTransformerBlock
#include "trireme/train/model.h"                     // Model, metric::…, callback::…
#include "trireme/train/step.h"                      // train::Step: one step of training
#endif
