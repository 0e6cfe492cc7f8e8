// Whole numbers in JSON that comes from elsewhere. The JSON library converts 1e100 to any type that is asked for, and
// for an int the result of that is undefined.
//
//   const json value = json::parse(text);
//   require_whole_numbers(value, json(Outcome{}));     // where Outcome has an int, the value must have a whole number
//   auto outcome = value.get<Outcome>();
//
// The pattern's first element stands for all elements of a list, its member "*" for all members of an object.
#pragma once

namespace trireme {

/// Throws what Json throws for a wrong type. Members that are absent, and values of other types, are left to get().
template <typename Json>
void require_whole_numbers(const Json& value, const Json& pattern) {
  if (pattern.is_number_integer() && value.is_number())
    (void)value.template get_ref<const typename Json::number_integer_t&>();
  if (pattern.is_array() && !pattern.empty() && value.is_array())
    for (const Json& element : value) require_whole_numbers(element, pattern[0]);
  if (!pattern.is_object() || !value.is_object()) return;
  for (const auto& [name, member] : value.items()) {
    const auto like = pattern.contains("*") ? pattern.find("*") : pattern.find(name);
    if (like != pattern.end()) require_whole_numbers(member, *like);
  }
}

}  // namespace trireme
