# bash-completion of shardloop: the words of each program, and the function that selects from them. Made from the
# programs' option tables.
declare -gA _shardloop_words
