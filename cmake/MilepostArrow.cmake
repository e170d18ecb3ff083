# Arrow's C++ library for Parquet, out of the pyarrow wheel (requirements/data.txt) of the project's Python: target milepost_arrow.
# Without the wheel there is no such target, and Parquet files are refused with a message that says what to install.
set(MILEPOST_PYTHON "${CMAKE_SOURCE_DIR}/.venv/bin/python" CACHE FILEPATH "Python with pytest; scripts/setup.sh --with-tests makes it")

execute_process(COMMAND "${MILEPOST_PYTHON}" -c "import pyarrow as p; print(p.get_include(), p.get_library_dirs()[0], p.cpp_version_info.major, sep=';')"
                RESULT_VARIABLE no_pyarrow OUTPUT_VARIABLE pyarrow_places OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
if(no_pyarrow)
  message(STATUS "Milepost: no pyarrow at ${MILEPOST_PYTHON}, so Parquet files are refused (requirements/data.txt)")
else()
  list(GET pyarrow_places 0 arrow_include)
  list(GET pyarrow_places 1 arrow_libraries)
  # The wheel holds libNAME.so.<major>00 without the name that a linker looks for.
  list(GET pyarrow_places 2 arrow_major)
  foreach(library arrow parquet)
    add_library(milepost_wheel_${library} SHARED IMPORTED)
    set_target_properties(milepost_wheel_${library} PROPERTIES
      IMPORTED_LOCATION "${arrow_libraries}/lib${library}.so.${arrow_major}00"
      INTERFACE_INCLUDE_DIRECTORIES "${arrow_include}")
  endforeach()
  add_library(milepost_arrow INTERFACE)
  target_link_libraries(milepost_arrow INTERFACE milepost_wheel_parquet milepost_wheel_arrow)
  target_compile_definitions(milepost_arrow INTERFACE MILEPOST_WITH_PARQUET)
endif()
