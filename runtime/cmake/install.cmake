# Installs headers, libraries and the CMake package `pte_arenas`.

include(CMakePackageConfigHelpers)

install(
  TARGETS extension_arenas extension_arenas_kernels
  EXPORT pte_arenas_targets
  ARCHIVE DESTINATION "${CMAKE_INSTALL_LIBDIR}"
  FILE_SET HEADERS DESTINATION "${CMAKE_INSTALL_INCLUDEDIR}"
  INCLUDES DESTINATION "${CMAKE_INSTALL_INCLUDEDIR}"
  OBJECTS DESTINATION "${CMAKE_INSTALL_LIBDIR}")
install(
  EXPORT pte_arenas_targets
  NAMESPACE pte_arenas::
  FILE pte_arenas-targets.cmake
  DESTINATION "${PTE_ARENAS_INSTALL_CMAKEDIR}")
foreach(target extension_arenas extension_arenas_kernels)
  add_library(pte_arenas::${target} ALIAS ${target})
endforeach()

configure_file(cmake/pte_arenas-config.cmake.in pte_arenas-config.cmake @ONLY)
write_basic_package_version_file(
  "${CMAKE_CURRENT_BINARY_DIR}/pte_arenas-config-version.cmake" COMPATIBILITY SameMinorVersion)
install(FILES "${CMAKE_CURRENT_BINARY_DIR}/pte_arenas-config.cmake"
              "${CMAKE_CURRENT_BINARY_DIR}/pte_arenas-config-version.cmake"
        DESTINATION "${PTE_ARENAS_INSTALL_CMAKEDIR}")
