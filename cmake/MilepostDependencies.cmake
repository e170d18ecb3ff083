# Every dependency of the torch-free part comes from Debian; scripts/setup.sh installs them.
find_package(Threads REQUIRED)
find_package(OpenSSL REQUIRED COMPONENTS Crypto)
find_package(fmt REQUIRED)
find_package(nlohmann_json REQUIRED)
find_package(CLI11 REQUIRED)
find_package(Boost 1.74 REQUIRED)  # Container (headers only)

find_library(ISAL_LIBRARY NAMES libisal.a isal REQUIRED)
find_path(ISAL_INCLUDE_DIR isa-l/crc.h REQUIRED)
add_library(isal::isal UNKNOWN IMPORTED)
set_target_properties(isal::isal PROPERTIES IMPORTED_LOCATION "${ISAL_LIBRARY}"
                                            INTERFACE_INCLUDE_DIRECTORIES "${ISAL_INCLUDE_DIR}")
find_package(ZLIB REQUIRED)  # crc32_combine, and reading deflated records and data files
find_package(simdjson REQUIRED)  # lines of data files
find_library(ZSTD_LIBRARY NAMES zstd REQUIRED)  # data files
find_path(ZSTD_INCLUDE_DIR zstd.h REQUIRED)
add_library(zstd::zstd UNKNOWN IMPORTED)
set_target_properties(zstd::zstd PROPERTIES IMPORTED_LOCATION "${ZSTD_LIBRARY}" INTERFACE_INCLUDE_DIRECTORIES "${ZSTD_INCLUDE_DIR}")
include(MilepostArrow)

find_package(ICU REQUIRED COMPONENTS uc)  # normal forms and properties of characters
find_library(PCRE2_LIBRARY NAMES pcre2-8 REQUIRED)
find_path(PCRE2_INCLUDE_DIR pcre2.h REQUIRED)
add_library(pcre2::pcre2 UNKNOWN IMPORTED)
set_target_properties(pcre2::pcre2 PROPERTIES IMPORTED_LOCATION "${PCRE2_LIBRARY}"
                                              INTERFACE_INCLUDE_DIRECTORIES "${PCRE2_INCLUDE_DIR}")

if(MILEPOST_TESTS)
  find_package(GTest REQUIRED)
endif()
if(MILEPOST_BENCH)
  find_package(benchmark REQUIRED)
endif()
