# Run by cpack when the files of all packages lie in folders, before they are packed: strips programs and the archive,
# compresses manual pages, moves the archive and completions to where Debian looks, and adds copyright and changelog.
include(${CPACK_PROJECT_CONFIG_FILE})

# run COMMAND...: or no package.
function(run)
    execute_process(COMMAND ${ARGN} RESULT_VARIABLE result)
    if(result)
        message(FATAL_ERROR "failed: ${ARGN}")
    endif()
endfunction()

set(top ${CPACK_TEMPORARY_INSTALL_DIRECTORY})
set(package_of_programs shardloop)
set(package_of_development libshardloop-dev)
set(package_of_documents shardloop-doc)

file(GLOB programs ${top}/programs/usr/bin/*)
run(${SL_STRIP} --remove-section=.comment --remove-section=.note ${programs})
foreach(program ${programs}) # the linker finds Debian's libraries without the folders of the build
    file(RPATH_REMOVE FILE ${program})
endforeach()
file(GLOB_RECURSE archives ${top}/development/*.a)
run(${SL_STRIP} --strip-debug --enable-deterministic-archives ${archives})
# The folder of this architecture is one level lower. A build that is configured for /usr has it already.
set(installed ${top}/development/usr/lib)
if("${SL_LIBDIR}" STREQUAL "lib" AND SL_ARCHITECTURE)
    file(MAKE_DIRECTORY ${installed}/${SL_ARCHITECTURE})
    foreach(name cmake pkgconfig libshardloop.a)
        file(RENAME ${installed}/${name} ${installed}/${SL_ARCHITECTURE}/${name})
    endforeach()
    set(description ${installed}/${SL_ARCHITECTURE}/pkgconfig/shardloop.pc)
    file(READ ${description} text)
    string(REPLACE "prefix=\${pcfiledir}/" "prefix=\${pcfiledir}/../" text "${text}")
    string(REPLACE "libdir=\${prefix}lib\n" "libdir=\${prefix}lib/${SL_ARCHITECTURE}\n" text "${text}")
    file(WRITE ${description} "${text}")
endif()

file(GLOB pages ${top}/programs/usr/share/man/man1/*.1)
if(pages)
    run(gzip -9nf ${pages})
endif()
if(EXISTS ${top}/programs/usr/share/zsh/site-functions)
    file(RENAME ${top}/programs/usr/share/zsh/site-functions ${top}/programs/usr/share/zsh/vendor-completions)
endif()

string(TIMESTAMP date "%a, %d %b %Y %H:%M:%S +0000" UTC)
file(READ ${SL_SOURCE}/LICENSE license)
foreach(component programs development documents)
    set(package ${package_of_${component}})
    set(folder ${top}/${component}/usr/share/doc/${package})
    file(WRITE ${folder}/copyright "shardloop: ${SL_DESCRIPTION}\n\n${license}")
    file(WRITE ${folder}/changelog.Debian
        "shardloop (${CPACK_PACKAGE_VERSION}-${CPACK_DEBIAN_PACKAGE_RELEASE}) unstable; urgency=medium\n\n"
        "  * Packed from a build; changelog.gz tells what is new.\n\n"
        " -- ${CPACK_PACKAGE_CONTACT}  ${date}\n")
    run(gzip -9nf ${folder}/changelog.Debian)
    file(COPY ${SL_SOURCE}/CHANGELOG.md DESTINATION ${folder})
    file(RENAME ${folder}/CHANGELOG.md ${folder}/changelog)
    run(gzip -9nf ${folder}/changelog)
endforeach()
file(REMOVE ${top}/documents/usr/share/doc/shardloop/LICENSE) # copyright has it
