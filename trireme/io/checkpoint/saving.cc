#include "trireme/io/checkpoint/saving.h"

#include <torch/torch.h>

#include <utility>

namespace trireme::detail {

Saving::Saving(const io::CheckpointFolder& folder, io::AsyncWriter* background, std::string name, io::Manifest manifest,
               Millis patience)
    : background_(background), name_(std::move(name)) {
  if (!background_) {
    note_.emplace((folder.path() / name_).string(), 0, patience);
    disk_.emplace(folder, name_, std::move(manifest));
    return;
  }
  background_->wait();  // before there is a second copy in memory
  memory_.manifest = std::move(manifest);
}

void Saving::begin(const std::string& file, const std::vector<io::TensorLayout>& tensors) {
  attempt([&] {
    if (disk_) {
      for (const io::TensorLayout& one : tensors) note_->expect(one.bytes());
      return disk_->begin(file, tensors);
    }
    file_ = &memory_.tensors[file];
    for (const io::TensorLayout& one : tensors) file_->insert(one.name, {});  // in the order of the file's header
  });
}

void Saving::write(const std::string& name, const torch::Tensor& tensor) {
  attempt([&] {
    if (disk_) {
      disk_->write(tensor);
      return note_->wrote(tensor.nbytes());
    }
    (*file_)[name] = tensor.is_cpu() ? tensor.detach().clone() : tensor.detach().cpu();
  });
}

void Saving::finish(const std::map<std::string, io::TensorMap>& more) {
  if (failed_) std::rethrow_exception(failed_);
  if (!disk_) {
    memory_.tensors.insert(more.begin(), more.end());
    return background_->write_own(name_, std::move(memory_));
  }
  for (const auto& [file, tensors] : more) disk_->write(file, tensors);
  disk_->commit();
  note_->done();
}

void Saving::attempt(const std::function<void()>& work) {
  if (failed_) return;
  try {
    work();
  } catch (...) {
    failed_ = std::current_exception();
  }
}

}  // namespace trireme::detail
