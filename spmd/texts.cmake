# Style sheets and scripts of pages lie in files of their own, which become C strings here.
#
# sl_texts(OUTPUT HEADER PREFIX TEXT...): OUTPUT, a file of C, defines what HEADER declares: of each TEXT, such as
# page.js, the string PREFIX_page_js.
function(sl_texts output header prefix)
    set(texts)
    foreach(text ${ARGN})
        set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${text})
        file(READ ${text} content)
        string(REPLACE "\\" "\\\\" content "${content}")
        string(REPLACE "\"" "\\\"" content "${content}")
        string(REPLACE "?" "\\?" content "${content}") # two of them may begin a trigraph
        string(REPLACE "\n" "\\n\"\n    \"" content "${content}")
        get_filename_component(name ${text} NAME)
        string(MAKE_C_IDENTIFIER ${name} name)
        string(APPEND texts "const char ${prefix}_${name}[] =\n    \"${content}\";\n")
    endforeach()
    file(CONFIGURE OUTPUT ${output} CONTENT "#include \"${header}\"\n@texts@" @ONLY)
endfunction()
