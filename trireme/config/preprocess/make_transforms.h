// transform_ops of a configuration -> image operators, by PaddleClas' names and keys.
//
//   image::Transforms transforms = make_transforms(config.train->dataset.transform_ops, config.train->dataset.node);
//
// Errors are UsageErrors with file and line: an unknown operator with the nearest name, a value of the wrong kind, an
// order that is not possible.
#pragma once

#include <vector>

#include "trireme/config/node.h"
#include "trireme/data/image/pipeline.h"

namespace trireme::preprocess {

/// `list` is where the operators stand, for messages about all of them.
image::Transforms make_transforms(const std::vector<config::NamedNode>& operators, const config::Node& list);

/// The same before they are put together.
std::vector<image::Operator> make_operators(const std::vector<config::NamedNode>& operators, const config::Node& list);

/// Those put together; what image::Transforms has against them is told with the place of the list.
image::Transforms put_together(std::vector<image::Operator> operators, const config::Node& list);

/// Where a thing of a list stands; one without parameters knows no place of its own.
const config::Node& place_of(const config::NamedNode& named, const config::Node& list);

}  // namespace trireme::preprocess
