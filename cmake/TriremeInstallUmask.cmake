# What is installed is for every user, whatever the umask of the one who installs. cmake makes folders under its umask and
# cannot change it, so under one that closes them another cmake installs, started by a shell that can. Include this file
# before any install().
install(CODE [[
  execute_process(COMMAND sh -c umask OUTPUT_VARIABLE umask OUTPUT_STRIP_TRAILING_WHITESPACE)
  if(NOT umask MATCHES "[02][02]$")
    set(settings)
    foreach(name PREFIX COMPONENT CONFIG_NAME DO_STRIP)
      list(APPEND settings "-DCMAKE_INSTALL_${name}=${CMAKE_INSTALL_${name}}")
    endforeach()
    execute_process(COMMAND sh -c "umask 022 && exec \"$@\"" sh "${CMAKE_COMMAND}" ${settings} -P "${CMAKE_CURRENT_LIST_FILE}"
      COMMAND_ERROR_IS_FATAL ANY)
    return()
  endif()
]] ALL_COMPONENTS)
