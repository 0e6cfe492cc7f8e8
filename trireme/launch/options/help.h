// The help texts, made from the table of options: nothing to keep in step by hand.
//
//   std::cout << launch_help("");        // one screen: usage, the options used most, examples, topics
//   std::cout << launch_help("nodes");   // one screen: every option about machines
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace trireme::launch {

/// The topics of `trireme launch --help TOPIC`, without "all".
const std::vector<std::string>& help_topics();

/// "" is the overview, "all" every topic in turn, kMarkdown options_markdown(), kManual the page for `man`. Throws
/// UsageError with a spelling hint for an unknown topic.
std::string launch_help(std::string_view topic);

/// Every option as Markdown tables by topic; docs/launch.md contains exactly this.
std::string options_markdown();

}  // namespace trireme::launch
