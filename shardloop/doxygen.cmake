# Target docs: pages of the headers that are installed, of the guides in docs/ and of the examples, by Doxygen where it is
# installed. Headers have plain comments; a filter makes the comments before and behind a declaration Doxygen's.
find_package(Doxygen QUIET)
if(NOT DOXYGEN_FOUND)
    return()
endif()
set(DOXYGEN_PROJECT_BRIEF ${PROJECT_DESCRIPTION})
set(DOXYGEN_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/docs)
set(DOXYGEN_USE_MDFILE_AS_MAINPAGE ${PROJECT_SOURCE_DIR}/README.md)
set(DOXYGEN_STRIP_FROM_PATH ${PROJECT_SOURCE_DIR})
set(DOXYGEN_INPUT_FILTER ${CMAKE_CURRENT_LIST_DIR}/doxygen.sed)
set(DOXYGEN_FILTER_PATTERNS "*.md=${CMAKE_CURRENT_LIST_DIR}/doxygen_guides.sed")
set(DOXYGEN_EXAMPLE_PATH ${PROJECT_SOURCE_DIR}/drivers/examples)
set(DOXYGEN_IMAGE_PATH ${PROJECT_SOURCE_DIR}/docs/pictures) # not the whole: files of tests come and go in build
set(DOXYGEN_OPTIMIZE_OUTPUT_FOR_C YES)
set(DOXYGEN_EXTRACT_ALL YES)
set(DOXYGEN_JAVADOC_AUTOBRIEF YES)
set(DOXYGEN_WARN_IF_UNDOCUMENTED NO)
set(DOXYGEN_WARN_AS_ERROR FAIL_ON_WARNINGS)
set(DOXYGEN_PREDEFINED "SL_BEGIN_C=" "SL_END_C=")
set(DOXYGEN_HAVE_DOT NO)
set(DOXYGEN_QUIET YES)
file(STRINGS ${PROJECT_SOURCE_DIR}/shardloop/front SL_INCLUDES REGEX "^= .*[.]h - ")
list(TRANSFORM SL_INCLUDES REPLACE "^= (.*[.]h) - .*" "${PROJECT_BINARY_DIR}/front/shardloop/\\1")
set_source_files_properties(${SL_INCLUDES} PROPERTIES GENERATED ON)
doxygen_add_docs(docs ${SL_INCLUDES} ${PROJECT_SOURCE_DIR}/README.md ${PROJECT_SOURCE_DIR}/CONTRIBUTING.md
    ${PROJECT_SOURCE_DIR}/CHANGELOG.md ${PROJECT_SOURCE_DIR}/docs
    COMMENT "pages of headers and guides: ${PROJECT_BINARY_DIR}/docs/html/index.html")
add_dependencies(docs sl_headers)
