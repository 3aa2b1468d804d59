# Numbers that packages of R compute from designs drawn by generate.py, which reads them.
# Rscript judges.R FOLDER
folder <- commandArgs(TRUE)[1]
file <- file(file.path(folder, "answers.txt"), "w")
say <- function(case, name, values) {
  cat(case, name, paste(sprintf("%.15g", values), collapse = " "), sep = "\t", file = file)
  cat("\n", file = file)
}
say("versions", "R", as.numeric(paste0(R.version$major, ".", sub("\\..*", "", R.version$minor))))
for (name in c("clubSandwich", "psychotools", "BradleyTerry2"))
  cat(paste("version", name, packageVersion(name), sep = "\t"), "\n", sep = "", file = file)

for (path in list.files(folder, "^clusters_.*csv$", full.names = TRUE)) {
  case <- sub(".csv", "", basename(path))
  data <- read.csv(path)
  fit <- lm(score ~ 1, data = data)
  v <- clubSandwich::vcovCR(fit, cluster = data$cluster, type = "CR2")
  t <- clubSandwich::coef_test(fit, vcov = v, test = "Satterthwaite")
  ci <- clubSandwich::conf_int(fit, vcov = v, level = 0.9, test = "Satterthwaite")
  say(case, "std_error", t$SE)
  say(case, "degrees_of_freedom", ci$df)
  say(case, "limits", c(ci$CI_L, ci$CI_U))
}
for (path in list.files(folder, "^welch_.*csv$", full.names = TRUE)) {
  case <- sub(".csv", "", basename(path))
  data <- read.csv(path)
  test <- t.test(data$score[data$model == "b"], data$score[data$model == "a"], conf.level = 0.9)
  say(case, "limits", test$conf.int)
  say(case, "p_value", test$p.value)
  say(case, "degrees_of_freedom", test$parameter)
}
for (path in list.files(folder, "^p_values_.*csv$", full.names = TRUE)) {
  case <- sub(".csv", "", basename(path))
  p <- scan(path, sep = ",", quiet = TRUE)
  say(case, "holm", p.adjust(p, "holm"))
  say(case, "benjamini_hochberg", p.adjust(p, "BH"))
}
for (path in list.files(folder, "^rasch_.*csv$", full.names = TRUE)) {
  case <- sub(".csv", "", basename(path))
  fit <- psychotools::raschmodel(as.matrix(read.csv(path)), reltol = 1e-14)
  items <- psychotools::itempar(fit, ref = NULL)
  say(case, "difficulty", coef(items))
  say(case, "std_error", sqrt(diag(vcov(items))))
  say(case, "log_likelihood", logLik(fit))
}
for (path in list.files(folder, "^contests_.*csv$", full.names = TRUE)) {
  case <- sub(".csv", "", basename(path))
  data <- read.csv(path)
  players <- sort(unique(c(data$first, data$second)))
  data$first <- factor(data$first, levels = players)
  data$second <- factor(data$second, levels = players)
  fit <- BradleyTerry2::BTm(cbind(data$won, data$lost), data$first, data$second)
  found <- BradleyTerry2::BTabilities(fit)
  say(case, "rating", found[, "ability"])
  say(case, "std_error", found[, "s.e."])
}
for (n in c(5, 20, 100)) for (effect in c(0.1, 0.5, 1)) {
  test <- power.t.test(n = n, delta = effect, sd = 1, sig.level = 0.05, type = "one.sample",
                       alternative = "two.sided", strict = TRUE)
  say(sprintf("power_%d_%g", n, effect), "power", test$power)
}
close(file)
