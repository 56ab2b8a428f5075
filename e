plan: --stage-times: "1e-320,1e9" is not 2 numbers from above 0 to 1000000, one a rank, separated by commas
