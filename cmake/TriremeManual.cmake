# trireme_manual(PROGRAM-TARGET trireme-serve COMPONENT WORDS…): the page trireme-serve(1), which the program writes itself out
# of its table of options when it is asked with these words and --man.
function(trireme_manual program name component)
  if(TRIREME_SANITIZE)
    return()
  endif()
  set(page ${PROJECT_BINARY_DIR}/man/${name}.1)
  file(MAKE_DIRECTORY ${PROJECT_BINARY_DIR}/man)
  add_custom_command(OUTPUT ${page} DEPENDS ${program} COMMAND ${program} ${ARGN} --man > ${page} VERBATIM)
  add_custom_target(manual_${name} DEPENDS ${page})
  add_dependencies(trireme_products manual_${name})
  set_property(GLOBAL APPEND PROPERTY TRIREME_PAGES_OF_${component} manual_${name})
  install(FILES ${page} DESTINATION ${CMAKE_INSTALL_MANDIR}/man1 COMPONENT ${component})
endfunction()
