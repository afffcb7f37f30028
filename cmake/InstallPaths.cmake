# SPDX-License-Identifier: Apache-2.0
# Install folders: inside the Python package for a wheel, else under the usual prefix.
if(DEFINED SKBUILD)
  set(NCCLTUNE_INSTALL_LIBDIR nccltune/native/lib)
  set(NCCLTUNE_INSTALL_BINDIR nccltune/native/bin)
  if(EXISTS ${CMAKE_SOURCE_DIR}/examples)
    install(DIRECTORY examples/ DESTINATION nccltune/examples COMPONENT demo)
  endif()
else()
  include(GNUInstallDirs)
  set(NCCLTUNE_INSTALL_LIBDIR ${CMAKE_INSTALL_LIBDIR})
  set(NCCLTUNE_INSTALL_BINDIR ${CMAKE_INSTALL_BINDIR})
endif()
