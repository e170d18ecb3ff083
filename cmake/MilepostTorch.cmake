# libtorch, out of the torch wheel of the project's Python (requirements/train.txt) or from Torch_DIR: target milepost_torch.
# Without it there is no such target, and the trainer is not built. Only train/ sees it.
set(MILEPOST_PYTHON "${CMAKE_SOURCE_DIR}/.venv/bin/python" CACHE FILEPATH "Python with pytest; scripts/setup.sh --with-tests makes it")

execute_process(
  COMMAND "${MILEPOST_PYTHON}" -c "import importlib.util as u, os; s = u.find_spec('torch'); print(os.path.dirname(s.origin) if s else '')"
  OUTPUT_VARIABLE torch_root OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
if(torch_root)
  list(APPEND CMAKE_PREFIX_PATH "${torch_root}/share/cmake")
endif()
find_package(Torch 2.13 QUIET)
if(NOT Torch_FOUND)
  message(STATUS "Milepost: no torch at ${MILEPOST_PYTHON}, so milepost-train is not built (scripts/setup.sh --with-train)")
elseif(MILEPOST_SANITIZE)
  message(STATUS "Milepost: milepost-train is not built with sanitizers")
else()
  # torch's headers bring a newer fmt than Debian's, which is used as source; they are system headers, so that their warnings are not ours.
  add_library(milepost_torch INTERFACE)
  target_include_directories(milepost_torch SYSTEM INTERFACE ${TORCH_INCLUDE_DIRS})
  target_compile_definitions(milepost_torch INTERFACE FMT_HEADER_ONLY=1)
  target_link_libraries(milepost_torch INTERFACE ${TORCH_LIBRARIES})
  # ATen's threads are OpenMP's of GCC: at::parallel_for is a plain loop in a file that is compiled without it. The process has one pool of
  # threads, so the library is the one that torch's wheel brings, if it does. Another compiler would bring a second pool.
  if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    find_file(MILEPOST_TORCH_OPENMP libgomp.so.1 PATHS "${TORCH_INSTALL_PREFIX}/lib" NO_DEFAULT_PATH)
    find_package(OpenMP REQUIRED COMPONENTS CXX)
    target_compile_options(milepost_torch INTERFACE ${OpenMP_CXX_FLAGS})
    target_link_libraries(milepost_torch INTERFACE $<IF:$<BOOL:${MILEPOST_TORCH_OPENMP}>,${MILEPOST_TORCH_OPENMP},OpenMP::OpenMP_CXX>)
  else()
    message(STATUS "Milepost: ${CMAKE_CXX_COMPILER_ID} does not share torch's OpenMP, so that milepost-train's own operations use one thread")
  endif()
  # c10d's NCCL, where libtorch has CUDA: its header comes with torch's wheels for CUDA, or with the system.
  if(TARGET torch_cuda)
    find_path(MILEPOST_NCCL_INCLUDE nccl.h PATHS "${torch_root}/../nvidia/nccl/include" "${torch_root}/../nvidia/cu13/include")
    if(MILEPOST_NCCL_INCLUDE)
      target_include_directories(milepost_torch SYSTEM INTERFACE "${MILEPOST_NCCL_INCLUDE}")
      target_compile_definitions(milepost_torch INTERFACE USE_C10D_NCCL=1)
    else()
      message(STATUS "Milepost: no nccl.h, so that milepost-train runs on CUDA in one process only (MILEPOST_NCCL_INCLUDE names its folder)")
    endif()
  endif()
endif()
