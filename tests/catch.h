// Catch2 2.x (Debian 12) or 3.x (Debian 13, Ubuntu 24.04) under the names that the unit tests use.
#pragma once
#include <string>

#if __has_include(<catch2/catch_all.hpp>)
#include <catch2/catch_all.hpp>
using Catch::Approx;
inline auto contains(const std::string& text) { return Catch::Matchers::ContainsSubstring(text); }
#else
#include <catch2/catch.hpp>
inline auto contains(const std::string& text) { return Catch::Matchers::Contains(text); }
#endif
