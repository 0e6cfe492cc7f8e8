// What an earlier chain left, removed so that it is not taken for what this one made. Nothing outside of the chain's
// own folder is ever removed, whatever names and links lead to.
//
//   remove_inside(folder, folder / "inference");
#pragma once

#include <filesystem>
#include <vector>

#include "trireme/tipc/plan.h"

namespace trireme::tipc {

/// Whether the folder that `path` lies in, links followed, is outside of `folder`, which must be there.
bool leads_out(const std::filesystem::path& folder, const std::filesystem::path& path);

/// A file or a folder with all in it; nothing happens when it is not there. UsageError when the way to it leads out of
/// `folder`, SystemError when it cannot be removed.
void remove_inside(const std::filesystem::path& folder, const std::filesystem::path& path);

/// The logs of the steps, and those of inference in every combination's folder (`cpp_infer_….log`), which `compare`
/// reads.
void remove_old_logs(const std::filesystem::path& folder, const std::vector<Step>& steps);

}  // namespace trireme::tipc
